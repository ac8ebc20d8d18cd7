"""Programs as lists of priced operations."""
