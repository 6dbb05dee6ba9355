"""Convolutions, transposed ones and their gradients, with the chain that follows inside."""
