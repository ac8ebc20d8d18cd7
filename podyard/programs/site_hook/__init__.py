"""The folder that stands first on a host's PYTHONPATH: Python imports `sitecustomize` from it at
its start."""
