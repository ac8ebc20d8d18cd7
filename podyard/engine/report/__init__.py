"""Forms of an estimate: text, JSON, a page, a trace, a comparison. No JAX, and prices come from the
caller."""
