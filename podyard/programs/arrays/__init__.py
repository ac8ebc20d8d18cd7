"""The arrays of a program: which are alive on a device, and which the host sends."""
