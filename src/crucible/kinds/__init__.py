"""Kinds: from problems to kernels of the IR. There is no CUDA in here."""
