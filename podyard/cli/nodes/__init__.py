"""Commands on nodes and capacity."""
