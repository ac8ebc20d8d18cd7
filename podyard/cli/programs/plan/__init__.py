"""`podyard plan`: options, rows and texts."""
