"""Traces of `jax.profiler`, with the modelled times of the devices."""
