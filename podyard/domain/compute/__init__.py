"""Compute Engine's resources: what they are, and why requests for them are refused."""
