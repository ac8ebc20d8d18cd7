"""Commands on buckets and objects."""
