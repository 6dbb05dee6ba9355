"""How convolutions and the gradients of their weights are divided among blocks, warps and warpgroups."""
