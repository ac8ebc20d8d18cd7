"""The cost of parts of a program: sizes in, seconds out."""
