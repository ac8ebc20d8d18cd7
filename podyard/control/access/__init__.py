"""Callers, and what they may do: projects, roles, tokens, keys, invitations."""
