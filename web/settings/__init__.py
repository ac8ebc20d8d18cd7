"""Pages of access, projects and the operator."""
