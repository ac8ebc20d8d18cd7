"""Commands that run or estimate programs."""
