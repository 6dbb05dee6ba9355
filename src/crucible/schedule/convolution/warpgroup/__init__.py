"""Convolutions by warpgroup instructions of Hopper: operands from shared memory, sums in registers."""
