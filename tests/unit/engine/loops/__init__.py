"""Loops of programs."""
