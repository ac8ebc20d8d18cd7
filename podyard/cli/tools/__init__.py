"""Commands on the stack, access and the platform."""
