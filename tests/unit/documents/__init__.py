"""Promises of the documents that show without running a command."""
