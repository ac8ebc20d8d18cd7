"""Programs of today, as people write them in JAX, and the TPU compiler's answers about them."""
