"""Convolutions whose phases are the windows of a pool, made one after another by warpgroups: `lower` is the way in."""
