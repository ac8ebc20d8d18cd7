"""Records, state tables and ports: what the platform is about, without any I/O."""
