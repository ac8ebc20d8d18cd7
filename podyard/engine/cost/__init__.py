"""What parts of a program cost: sizes in, seconds out."""
