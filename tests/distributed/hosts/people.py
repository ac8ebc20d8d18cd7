"""People with OpenSSH's clients and a key, as tests log in to hosts."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.waiting import patient


class KeyHolder:
    """Somebody with a key. `place`: address and port of a host's ssh server."""

    def __init__(self, folder: Path, place: tuple[str, int]) -> None:
        self._key = folder / "key"
        if not self._key.exists():
            command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._key))
            subprocess.run(command, check=True)
        self._address, self._port = place
        known = f"UserKnownHostsFile={folder / 'known'}"
        self._options = ("-i", str(self._key), "-o", "BatchMode=yes", "-o", known)
        self._options += ("-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR")

    @property
    def public(self) -> str:
        return self._key.with_suffix(".pub").read_text().strip()

    def ssh(
        self, name: str, command: str, *, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        return self._run(
            ("ssh", *self._options, *options, "-p", str(self._port)),
            f"{name}@{self._address}",
            command,
        )

    def scp(self, source: Path, name: str, target: str) -> subprocess.CompletedProcess[str]:
        command = ("scp", *self._options, "-P", str(self._port), str(source))
        return self._run(command, f"{name}@{self._address}:{target}")

    @staticmethod
    def _run(first: Sequence[str], *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*first, *more], capture_output=True, text=True, timeout=patient(60), check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
