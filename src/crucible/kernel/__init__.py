"""The kernel IR: what a kernel does, as nodes that are verified, run on the CPU, and printed by `print`."""
