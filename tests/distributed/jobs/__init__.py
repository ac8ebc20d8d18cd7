"""Jobs of users' programs, on a stack."""
