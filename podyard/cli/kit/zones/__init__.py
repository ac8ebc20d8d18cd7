"""Zones that a command means when it names none: of a resource, or of an accelerator type."""
