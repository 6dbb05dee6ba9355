"""Convolutions, transposed ones and their gradients as tensor-core kernels, with the chain that follows inside."""
