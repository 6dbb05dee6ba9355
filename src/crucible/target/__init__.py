"""Targets: device functions and types as CUDA C++, which printed kernels call."""
