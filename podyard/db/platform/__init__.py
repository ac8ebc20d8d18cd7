"""Rows of agents, faults, the audit log and webhooks."""
