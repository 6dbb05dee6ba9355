"""Convolutions of several phases, which warpgroups make side by side of each plane of input: `lower` is the way in."""
