"""Convolutions by warpgroup instructions of Hopper: operands from shared memory, outputs in bulk copies."""
