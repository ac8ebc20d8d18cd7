"""The parts of a recorded step of PyTorch that are not PyTorch's operations: shardings, exchanges,
kernels; and its text."""
