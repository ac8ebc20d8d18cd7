"""The report of `podyard run --tpu`."""
