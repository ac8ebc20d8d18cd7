"""Which node gets which chips: pure decisions over a snapshot of the fleet."""
