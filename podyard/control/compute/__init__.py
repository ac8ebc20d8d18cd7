"""Nodes, queued resources, reservations, hosts, maintenance, quota."""
