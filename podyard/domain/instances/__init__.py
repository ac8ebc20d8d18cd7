"""Instances of Compute Engine and their managed groups: records, states, texts. Pure."""
