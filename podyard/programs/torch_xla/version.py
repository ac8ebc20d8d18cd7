"""The release of torch_xla whose names are here."""

from podyard.programs.torch_xla_package import VERSION as __version__

__all__ = ["__version__"]
