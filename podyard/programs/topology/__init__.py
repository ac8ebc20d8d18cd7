"""Slices that a program asks about without having them."""
