"""Rows of projects, accounts and credentials."""
