"""Lists of every API: filters, and pages of rows."""
