"""What a recorded step of PyTorch holds besides PyTorch's own operations: shardings, exchanges,
kernels."""
