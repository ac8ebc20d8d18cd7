"""What a TPU rejects, although a CPU would run it."""
