"""Sums over hosts: schedules as data, a runner, transports."""
