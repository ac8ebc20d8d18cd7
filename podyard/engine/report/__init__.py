"""What is said of an estimate: text, JSON, a page, a trace, a comparison. No JAX, no prices of its own."""
