"""The commands of README and docs, run as a reader types them."""
