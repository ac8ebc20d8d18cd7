"""The text of modules, as they are priced."""
