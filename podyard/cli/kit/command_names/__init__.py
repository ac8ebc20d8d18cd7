"""Names of commands: other names that lead to a command, and suggestions for the rest."""
