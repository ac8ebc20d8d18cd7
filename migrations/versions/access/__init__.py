"""Revisions of the tables of identities and logs."""
