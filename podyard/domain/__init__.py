"""Records, state tables, events and ports: what the platform is about, without any I/O."""
