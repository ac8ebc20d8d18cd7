"""A pod of three dimensions as one body."""
