"""`podyard tpu notebook`: notebooks on the hosts of a node."""
