"""Which torch_xla a program gets; the `torch` of these tests is an empty file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podyard.programs import SITE_HOOK

_CODE = """
import importlib.metadata as m, importlib.util as u
spec = u.find_spec("torch_xla")
try:
    version = m.version("torch-xla")
except m.PackageNotFoundError:
    version = None
print(None if spec is None else spec.origin, version)
"""


def _found(folder: Path, **changes: str) -> tuple[str, str]:
    env = {"PYTHONPATH": f"{SITE_HOOK}{os.pathsep}{folder}", **changes}
    done = subprocess.run(
        [sys.executable, "-c", _CODE], env=env, capture_output=True, text=True, timeout=30
    )
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize(("torch", "kind"), [(True, "off"), (True, ""), (False, "v3-8")])
def test_without_torch_or_without_a_tpu_there_is_none(
    tmp_path: Path, torch: bool, kind: str
) -> None:
    if torch:
        (tmp_path / "torch.py").touch()
    assert _found(tmp_path, PODYARD_TPU=kind) == ("None None", "")


def test_podyards_own_has_a_version(tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    own = SITE_HOOK.parent / "torch_xla" / "__init__.py"
    assert _found(tmp_path, PODYARD_TPU="v3-8") == (f"{own} 2.9.0", "")


def test_one_that_is_installed_wins_and_a_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    (tmp_path / "torch_xla.py").touch()
    out, err = _found(tmp_path, PODYARD_TPU="v3-8")
    assert out == f"{tmp_path / 'torch_xla.py'} None"
    assert err == "podyard: the installed torch_xla is used: it sees CPU devices, and no TPU"
