"""torch_xla.test: what examples print with."""
