"""Overview, search, documents and the lesson; the table of pages."""
