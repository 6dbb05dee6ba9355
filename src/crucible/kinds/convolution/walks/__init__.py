"""Convolutions whose weights stay in shared memory while warpgroups walk along planes: `lower` is the way in."""
