"""Pages of buckets and objects."""
