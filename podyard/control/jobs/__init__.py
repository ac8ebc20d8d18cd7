"""Jobs, their attempts and gangs, agents, recovery."""
