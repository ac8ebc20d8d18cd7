"""The console."""
