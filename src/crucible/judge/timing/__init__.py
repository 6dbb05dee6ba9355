"""Timing: contestants take turns beside the baselines; what their samples say, and whether to believe them."""
