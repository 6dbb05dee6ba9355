"""Convolutions that warps multiply, each for itself (`mma.sync`, from compute capability 8.0 on): `lower` is the way
in."""
