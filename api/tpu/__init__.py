"""Google's Cloud TPU API."""
