"""A Podyard that an ordinary user of this machine runs, in tests that root runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from tests.stack import PODYARD, Stack
from tests.waiting import patient


@contextlib.contextmanager
def make_user() -> Iterator[tuple[str, Path]]:
    """An ordinary user of this machine with a separate home: (name, home)."""
    if os.geteuid() != 0 or shutil.which("useradd") is None or shutil.which("runuser") is None:
        pytest.skip("only root can make another user")
    # Not in pytest's folder: that is closed to other users again whenever another run of pytest
    # begins.
    with tempfile.TemporaryDirectory(prefix="podyard-user-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        name, home = f"podyard-{os.getpid()}", Path(folder) / "home"
        subprocess.run(["useradd", "--create-home", "--home-dir", str(home), name], check=True)
        try:
            yield name, home
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):
                subprocess.run(["userdel", name], check=True, capture_output=True)


class UserStack(Stack):
    """A stack that an ordinary user runs, from a virtual environment in the user's home. `data`
    lies in that home."""

    def __init__(self, data: Path, name: str, env: dict[str, str] | None = None) -> None:
        super().__init__(data, env)
        self._name = name
        self.python = str(self.home / "venv" / "bin" / "python")
        base = next((path for path in _pythons() if self.run(path, "-c", "").returncode == 0), None)
        if (
            base is None
            or self.run(base, "-m", "venv", "--without-pip", str(self.home / "venv")).returncode
            != 0
        ):
            pytest.skip("no Python that an ordinary user may run")
        packages = next(self.home.glob("venv/lib/python3*/site-packages"))
        (packages / "podyard-test.pth").write_text(
            "".join(f"{path}\n" for path in sys.path if path)
        )
        if (
            self.run(self.python, "-c", "import podyard.main, asyncssh, pydantic_core").returncode
            != 0
        ):
            pytest.skip("an ordinary user may not read the packages of this Python")

    @property
    def home(self) -> Path:
        return self.data.parent

    def run(self, *words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Any command, as the user."""
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        home = str(self.home)
        whole = {
            **kept,
            "HOME": home,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **self.env,
        }
        argv = ["runuser", "-u", self._name, "--", *words]
        return subprocess.run(
            argv, env=whole, cwd=home, capture_output=True, text=True, timeout=patient(seconds),
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    @override
    def podyard(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.command(*arguments, "--data", str(self.data))

    @override
    def command(self, *words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        return self.run(self.python, *PODYARD[1:], *words, seconds=seconds)


def _pythons() -> Iterator[str]:
    """This one, else one of the same version: root's own may lie where nobody else can look."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    yield from (sys.base_prefix + f"/bin/{name}", f"/usr/bin/{name}", f"/usr/local/bin/{name}")
