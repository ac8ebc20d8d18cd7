"""Adds to what pyproject.toml says: one file goes to the top of site-packages."""

from __future__ import annotations

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """Builds Podyard, and the line that Python runs at its start (see podyard/programs/__init__.py)."""

    def run(self) -> None:
        super().run()
        target = self.get_finalized_command("install").install_lib if self.editable_mode else self.build_lib
        self.copy_file("podyard/programs/podyard_programs.pth", target)


setup(cmdclass={"build_py": BuildPy})
