"""Reads over several rooms: lists, consistency, retention, measures."""
