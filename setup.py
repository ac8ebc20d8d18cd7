"""Adds to what pyproject.toml says: one file goes to the top of site-packages, and the documents into the package."""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """Builds Podyard, the documents that its console shows, and the line that Python runs at its start (see
    podyard/programs/__init__.py)."""

    def run(self) -> None:
        super().run()
        target = self.get_finalized_command("install").install_lib if self.editable_mode else self.build_lib
        self.copy_file("podyard/programs/podyard_programs.pth", target)
        if not self.editable_mode:  # a checkout has its folder
            for document in sorted(Path("docs").rglob("*.md")):
                copy = Path(self.build_lib, "podyard", document)
                self.mkpath(str(copy.parent))
                self.copy_file(str(document), str(copy))


setup(cmdclass={"build_py": BuildPy})
