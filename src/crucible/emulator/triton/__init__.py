"""Triton without a GPU: kernels run through Triton's own interpreter, every access of theirs watched.

See docs/emulator.md.
"""
