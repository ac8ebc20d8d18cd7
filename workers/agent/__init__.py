"""The agent of a machine."""
