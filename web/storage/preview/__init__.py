"""A look into an object of a bucket."""
