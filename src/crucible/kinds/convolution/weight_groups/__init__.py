"""The gradient of a convolution's weight by warpgroups, several planes of input at a time: `lower` is the way in."""
