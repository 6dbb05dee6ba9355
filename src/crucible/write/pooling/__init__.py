"""Pools as CUDA C++: `forward` and `backward`."""
