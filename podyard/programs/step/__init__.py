"""The training step of a program: which module it is, and from where it is called."""
