"""Text: what terminals make of it, and names with braces."""
