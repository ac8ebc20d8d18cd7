"""A whole run of a program, from its training step: tokens, hours, cost."""
