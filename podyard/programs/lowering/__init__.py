"""Rules of what a TPU rejects, although a CPU would run it."""
