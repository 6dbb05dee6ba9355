"""Algebra: chains, programs, pools, convolutions and products: what is computed, its gradients, and what it equals."""
