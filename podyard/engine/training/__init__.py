"""Data-parallel training: shards, steps, checkpoints, resume."""
