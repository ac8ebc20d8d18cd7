"""The chips that a process uses, and slices that it asks about without having them."""
