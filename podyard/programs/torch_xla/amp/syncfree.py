"""Optimizers that need not wait for the device: here none has to."""

from torch.optim import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW"]
