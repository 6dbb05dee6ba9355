"""Convolutions: `lower.lower_convolution` is the way in; what multiplies is text still (`write.convolution`)."""
