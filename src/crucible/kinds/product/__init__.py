"""Products of matrices: `lower` is the way in."""
