"""The whole system on a virtual clock, from one seed."""
