"""The hook in users' Python: it costs nothing, hides nothing, and breaks no program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podyard.programs import SITE_HOOK
from podyard.programs.jax_coordinator import listening_on, on_host

OWN = "127.128.3.4"
# A `jax` with the names that the hook needs; `_jax` notes what it is called with.
_JAX = """
class _jax:
    get_distributed_runtime_service = staticmethod(lambda address, *a, **o: print("listens", address, a, o))
    get_distributed_runtime_client = staticmethod(lambda address, *a, **o: print("dials", address, a, o))
class State:
    def initialize(self, address, bind=None):
        self.coordinator_address = address
        _jax.get_distributed_runtime_service(bind or "[::]:" + address.rsplit(":", 1)[1], 4, heartbeat_timeout=1)
        _jax.get_distributed_runtime_client(address, 0)
global_state = State()
"""  # noqa: E501


def _python(code: str, folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": f"{SITE_HOOK}{os.pathsep}{folder}", "PODYARD_ADDRESS": OWN, **changes}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=30
    )


def _jax(folder: Path, text: str = _JAX) -> None:
    (folder / "jax" / "_src").mkdir(parents=True)
    for name in ("__init__.py", "_src/__init__.py"):
        (folder / "jax" / name).write_text("")
    (folder / "jax" / "_src" / "distributed.py").write_text(text)


@pytest.mark.parametrize(
    ("arguments", "listens", "dials"),
    [
        ("'127.0.0.9:8482'", "127.0.0.9:8482", "127.0.0.9:8482"),
        ("'localhost:99'", f"{OWN}:99", f"{OWN}:99"),
        # what the program chose itself
        ("'127.0.0.9:8482', '127.0.0.8:1'", "127.0.0.8:1", "127.0.0.9:8482"),
        ("'198.51.100.1:8482'", "[::]:8482", "198.51.100.1:8482"),  # no address of this machine
    ],
)
def test_the_coordinator_listens_where_it_is_dialled(
    tmp_path: Path, arguments: str, listens: str, dials: str
) -> None:
    _jax(tmp_path)
    done = _python(
        f"from jax._src.distributed import global_state as s; s.initialize({arguments})", tmp_path
    )
    assert (
        done.stdout
        == f"listens {listens} (4,) {{'heartbeat_timeout': 1}}\ndials {dials} (0,) {{}}\n"
    ), done.stderr


def test_without_an_address_of_its_own_nothing_is_changed(tmp_path: Path) -> None:
    _jax(tmp_path)
    code = "from jax._src.distributed import global_state as s; s.initialize('localhost:1')"
    assert "listens [::]:1 " in _python(code, tmp_path, PODYARD_ADDRESS="").stdout


def test_another_jax_than_the_hook_knows_runs_as_it_is_and_a_line_says_so(tmp_path: Path) -> None:
    _jax(tmp_path, "value = 7")
    done = _python("import jax._src.distributed as d; print(d.value)", tmp_path)
    assert (done.returncode, done.stdout) == (0, "7\n")
    assert done.stderr.startswith(
        "podyard: jax_coordinator does not work here, jax._src.distributed stays as it is"
    )
    assert len(done.stderr.splitlines()) == 1


def test_the_user_s_own_sitecustomize_runs_and_the_path_is_the_user_s(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the user\\'s')")
    done = _python("import sys, sitecustomize; print(sitecustomize.__file__, *sys.path)", tmp_path)
    first, second = done.stdout.splitlines()
    assert (first, second.split()[0]) == ("the user's", str(tmp_path / "sitecustomize.py")), (
        done.stderr
    )
    assert str(SITE_HOOK) not in second.split()


def test_a_sitecustomize_that_fails_fails_as_without_the_hook(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('the user\\'s')")
    with_hook, without = _python("", tmp_path), _python("", tmp_path, PYTHONPATH=str(tmp_path))
    assert with_hook.returncode == without.returncode == 0
    assert with_hook.stderr == without.stderr
    assert "the user's" in with_hook.stderr


def test_a_python_without_jax_imports_nothing_more_than_the_hook_itself(tmp_path: Path) -> None:
    code = "import sys; print(*sorted(sys.modules))"
    with_hook, without = _python(code, tmp_path), _python(code, tmp_path, PYTHONPATH=str(tmp_path))
    assert set(with_hook.stdout.split()) - set(without.stdout.split()) <= {"sitecustomize"}


def test_addresses_are_read_as_they_are_meant_on_the_host() -> None:
    assert [on_host(f"{name}:5", OWN) for name in ("localhost", "127.0.0.1", "[::1]")] == [
        f"{OWN}:5"
    ] * 3
    assert on_host("127.128.0.9:5", OWN) == "127.128.0.9:5"
    assert listening_on("0.0.0.0:5", "127.0.0.1:5") == "127.0.0.1:5"
    assert listening_on("[::]:5", "[::1]:5") == "[::]:5"
