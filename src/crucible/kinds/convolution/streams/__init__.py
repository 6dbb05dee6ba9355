"""Convolutions by warpgroups whose weights do not stay: positions are rows of products. `lower` is the way in."""
