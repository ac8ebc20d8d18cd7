"""Invariants of the whole database, leaks, and faults on demand."""
