"""Placement of nodes on chips: pure decisions over a snapshot of the fleet."""
