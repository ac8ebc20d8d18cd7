"""Parts of a step that are not kernels."""
