"""torch_xla, as far as CPU tensors need it."""
