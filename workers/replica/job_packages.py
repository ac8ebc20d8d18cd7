"""The packages that a user's program asks for: installed by pip on its host, on top of the host's
own environment.

In a box pip and what it runs are the user's affair, like the program. What one host has made is
kept as a file, per project, and other hosts and later attempts unpack it in their boxes: this
machine itself never looks into it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.domain.user_program import PROJECT, REQUIREMENTS, SEPARATOR
from podyard.workers.replica.program_host import ProgramHost

KEPT_MAX = 20  # environments of a project; the one that was used last is the last to go
_LOCK_LOOK_SECONDS = 0.2
_MADE = "podyard.made"  # there once all packages are
_HINT = (
    "this host reaches no package index: set PODYARD_BOX_NETWORK=public, or put the wheels of all "
    "packages into a folder of the source"
)
# The program's files are in the current folder, and one may be named queue.py: pip imports none.
_INSTALL = """set -e
export PYTHONSAFEPATH=1
target=$HERE
rm -rf "$target" && mkdir -p "$(dirname "$target")"
own=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if python -m pip --version > /dev/null 2>&1; then own_pip=--without-pip; fi
python -m venv $own_pip "$target"
packages=$("$target/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "import site; site.addsitedir('$own')" > "$packages/podyard_host.pth"
set --
for wheel in ./*.whl ./*/*.whl; do
  if [ -e "$wheel" ]; then set -- "$@" --find-links "$(dirname "$wheel")"; fi
done
INDEX
"$target/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off --retries 2 "$@" WHAT
touch "$target/MADE"
"""  # noqa: E501


# Without a network pip would ask the index first, again and again.
_WHEELS_ONLY = 'if [ $# -gt 0 ]; then set -- "$@" --no-index; fi'


class JobPackages:
    """Of one program on one host. `key`: of equal packages; `project`: whose they are. `cache`: of
    this machine."""

    def __init__(
        self,
        host: ProgramHost,
        cache: Path,
        project: str,
        packages: str,
        key: str,
        clock: RealClock,
    ) -> None:
        self._host = host
        self._packages = packages
        self._clock = clock
        text = "\n".join((packages, key, host.software, sys.version, sys.prefix))
        self._name = hashlib.sha256(text.encode()).hexdigest()[:32]
        self._folder = cache / "packages" / hashlib.sha256(project.encode()).hexdigest()[:16]
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Without boxes all hosts share the folder itself.
        self.path = (
            f"{host.home}/.podyard/packages/{self._name}"
            if host.has_box
            else str(self._folder / self._name)
        )

    def install(self) -> str:
        """Makes the environment, unless there is one. Returns why it cannot be made; "" if it
        can."""
        if self._is_made():
            return ""
        with self._lock():
            if self._is_made():
                return ""
            file = self._folder / f"{self._name}.tar"
            if self._host.has_box and file.exists():
                os.utime(file)
                with file.open("rb") as source:
                    code = self._host.run(
                        f'mkdir -p "{self._parent}" && tar -C "{self._parent}" -xf -', stdin=source
                    )
                if code == 0:
                    self._host.say(f"{self._packages}: installed before")
                    return ""
            self._host.say(f"{self._packages}: installing packages")
            code = self._host.run(self._script())
            if code != 0:
                hint = f"\n{_HINT}" if not self._host.has_network else ""
                errors = "\n".join(line for line in self._host.tail if line.startswith("ERROR:"))
                return (
                    f"{self._packages} cannot be installed: "
                    f"{errors or self._host.failure(code)}{hint}"
                )
            self._host.say(f"{self._packages}: packages are installed")
            if self._host.has_box:
                self._keep(file)
        return ""

    @property
    def _parent(self) -> str:
        return self.path.rpartition("/")[0]

    def _is_made(self) -> bool:
        return self._host.run(f"test -e {shlex.quote(f'{self.path}/{_MADE}')}") == 0

    def _script(self) -> str:
        known = {REQUIREMENTS: f"-r {REQUIREMENTS}", PROJECT: "."}
        what = " ".join(
            known.get(name, shlex.quote(f"./{name}")) for name in self._packages.split(SEPARATOR)
        )
        return (
            _INSTALL.replace("$HERE", shlex.quote(self.path))
            .replace("MADE", _MADE)
            .replace("INDEX", "" if self._host.has_network else _WHEELS_ONLY)
            .replace("WHAT", what)
        )

    def _keep(self, file: Path) -> None:
        """For others, if there is room; who installs again loses time only."""
        partial = file.with_suffix(".partial")
        try:
            with partial.open("wb") as out:
                code = self._host.run(f'tar -C "{self._parent}" -cf - {self._name}', stdout=out)
                os.fsync(out.fileno())
            if code == 0:
                partial.replace(file)
        except OSError as error:
            self._host.say(f"{self._packages}: not kept for other hosts: {error.strerror}")
        partial.unlink(missing_ok=True)
        kept = sorted(self._folder.glob("*.tar"), key=lambda path: path.stat().st_mtime)
        for path in kept[:-KEPT_MAX]:
            path.unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        file = os.open(
            self._folder / f"{self._name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            is_told = False
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not is_told:
                        self._host.say(f"{self._packages}: another worker installs the packages")
                    is_told = True
                    self._host.check_leaving()
                    self._clock.sleep(_LOCK_LOOK_SECONDS)
            yield
        finally:
            os.close(file)
