"""Products as a matrix unit computes them: the slow specification and the fast path."""
