"""Pages of Compute Engine's instances and managed groups."""
