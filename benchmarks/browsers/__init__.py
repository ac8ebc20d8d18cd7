"""Benchmarks with real browsers."""
