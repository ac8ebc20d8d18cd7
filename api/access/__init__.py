"""Credentials: who calls, and how people and programs get tokens."""
