"""Pools as kernels of the IR: `forward` and `backward`."""
