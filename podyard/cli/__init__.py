"""The command line: supervision of the stack, and a client of its API."""
