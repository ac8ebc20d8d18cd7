"""What a matrix unit computes: the slow specification and the fast path."""
