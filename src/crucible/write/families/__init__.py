"""Families: how programs become kernels. `lower` is the way in."""
