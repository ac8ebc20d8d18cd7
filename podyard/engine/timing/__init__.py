"""Modelled time. No JAX in here."""
