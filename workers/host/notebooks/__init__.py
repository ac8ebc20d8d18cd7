"""Notebooks on hosts: JupyterLab in the box of a host, and the way to it."""
