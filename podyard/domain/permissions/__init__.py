"""Permissions, and the roles that hold them."""
