"""Convolutions: `lower.lower_convolution` is the way in."""
