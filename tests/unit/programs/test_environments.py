"""Environments of software, made by pip from wheels of this test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from podyard.base.clock import OsClock
from podyard.hardware import software as software_data
from podyard.hardware.software import LOCKED_PYTHON, Software
from podyard.programs import SITE_HOOK, environments
from tests.wheels import write_wheels

pytestmark = pytest.mark.slow
PINS = ("tiny==1.0", "tiny-part==2.5")
TINY = Software("Tiny", "1.0", (LOCKED_PYTHON, 99), ("tiny==1.0",))
MAKER = """
    import sys
    from pathlib import Path
    from podyard.base.clock import OsClock
    from podyard.hardware import software
    from podyard.programs import environments
    software._LOCKS = Path(sys.argv[1])
    tiny = software.Software("Tiny", "1.0", (11, 99), ("tiny==1.0", "tiny-part==2.5"))
    print(environments.make(tiny, Path(sys.argv[2]), OsClock(), lambda text: print(text, flush=True)))
"""  # noqa: E501


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lock files of these tests, and wheels that pip finds."""
    folder = tmp_path / "locks"
    folder.mkdir()
    (folder / "tiny-1.0.txt").write_text("# Python 3\n" + "\n".join(PINS) + "\n")
    monkeypatch.setattr(software_data, "_LOCKS", folder)
    monkeypatch.setattr(environments, "_PYTHON", LOCKED_PYTHON)
    for name, value in write_wheels(tmp_path / "wheels", PINS).items():
        monkeypatch.setenv(name, value)
    return folder


def _make(folder: Path) -> tuple[Path, list[str]]:
    told: list[str] = []
    return environments.make(TINY, folder, OsClock(), told.append), told


def _maker(locks: Path, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(MAKER), str(locks), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_an_environment_has_its_packages_and_finds_the_hook(tmp_path: Path) -> None:
    path, told = _make(tmp_path / "runtimes")
    assert told[0] == "Tiny 1.0: making an environment"
    assert told[-3:] == [
        "Tiny 1.0: package 1 of 2",
        "Tiny 1.0: package 2 of 2",
        "Tiny 1.0: installing the packages",
    ]
    code = (
        "import sys, tiny, tiny_part; print(tiny.__version__, tiny_part.__version__, "
        "type(sys.meta_path[0]).__module__)"
    )
    environ = {**environments.activate(os.environ, path), "PODYARD_SITE_HOOK": str(SITE_HOOK)}
    done = subprocess.run(["python", "-c", code], env=environ, capture_output=True, text=True)
    assert done.stdout == "1.0 2.5 sitecustomize\n", done.stderr
    again, told = _make(tmp_path / "runtimes")
    assert (again, told) == (path, [])


def test_a_package_that_cannot_be_had_is_named_and_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "wheels" / "tiny_part-2.5-py3-none-any.whl").unlink()
    with pytest.raises(OSError, match=r"^Tiny 1\.0 cannot be installed: .*tiny-part==2\.5"):
        _make(tmp_path / "runtimes")
    assert [path.name for path in (tmp_path / "runtimes").iterdir() if path.is_dir()] == []
    write_wheels(tmp_path / "wheels", PINS)
    assert _make(tmp_path / "runtimes")[0].is_dir()


def test_what_is_left_half_done_is_made_again(locks: Path, tmp_path: Path) -> None:
    first = _maker(locks, tmp_path / "runtimes")
    assert first.stdout is not None
    assert "making" in first.stdout.readline()
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    path, _ = _make(tmp_path / "runtimes")
    assert subprocess.run([path / "bin" / "python", "-c", "import tiny, tiny_part"]).returncode == 0


def test_two_that_need_it_at_once_make_it_once(locks: Path, tmp_path: Path) -> None:
    both = [_maker(locks, tmp_path / "runtimes") for _ in range(2)]
    said = [process.communicate(timeout=120)[0].splitlines() for process in both]
    assert said[0][-1] == said[1][-1]  # the folder
    makers = [lines for lines in said if "Tiny 1.0: making an environment" in lines]
    assert len(makers) == 1
    assert ["Tiny 1.0: another process makes it"] in [
        lines[:-1] for lines in said if lines not in makers
    ]
