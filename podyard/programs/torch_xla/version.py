"""The release of torch_xla whose names are here."""

__version__ = "2.9.0"
