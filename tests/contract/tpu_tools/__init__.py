"""Tools that people use on TPUs, under `podyard run --tpu`."""
