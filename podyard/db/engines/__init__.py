"""Drivers, dialects and files of SQLite and PostgreSQL."""
