"""Products of matrices as kernels of ours, where PyTorch's keep float32 without tensor cores."""
