"""Client, options, tables and names of all commands."""
