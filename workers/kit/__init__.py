"""Parts that the rooms of workers share: HTTP, tokens, groups of processes."""
