"""Which tests a slow machine runs: those of `make fast` and a part of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import parts
from tests.nested_pytest import run_module

NAMES = "abcd"
FILE = """
import pytest

@pytest.mark.slow
def test_slow_{name}(): pass

@pytest.mark.slow
@pytest.mark.long
def test_long_{name}(): pass

def test_quick_{name}(): pass
"""


@pytest.mark.parametrize(("slow", "count"), [(1.2, 1), (1.3, 3), (2.5, 6)])
def test_the_slower_the_machine_the_smaller_the_part_and_commits_share_them_all(
    slow: float, count: int
) -> None:
    ran = {parts.part_of(f"{commit:040x}\n", slow) for commit in range(50)}
    assert ran == ({""} if count == 1 else {f"{part}/{count}" for part in range(1, count + 1)})


@pytest.mark.parametrize(
    ("text", "found", "told"), [("", None, ""), ("2/3", (1, 3), "; part 2 of 3 of the files")]
)
def test_the_header_names_the_part(
    text: str, found: tuple[int, int] | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(parts.PART_VARIABLE, text)
    assert (parts.chosen(), parts.header()) == (found, told)


def test_every_file_is_in_one_part() -> None:
    files = [f"tests/test_{number}.py" for number in range(20)]
    kept = [set(files) - parts.left_out(files, part, 3) for part in range(3)]
    assert set.union(*kept) == set(files) and sum(map(len, kept)) == len(files)
    assert max(map(len, kept)) - min(map(len, kept)) <= 1


@pytest.mark.slow
def test_all_parts_together_run_all_tests_but_the_long_ones(tmp_path: Path) -> None:
    for name in NAMES:
        for folder in ("unit", "store"):
            (tmp_path / "tests" / folder).mkdir(parents=True, exist_ok=True)
            file = tmp_path / "tests" / folder / f"test_{folder}_{name}.py"
            file.write_text(FILE.format(name=f"{folder}_{name}"))
    ran = [_passed(tmp_path, {parts.PART_VARIABLE: f"{part}/3"}) for part in (1, 2, 3)]
    fast = {f"test_quick_unit_{name}" for name in NAMES}
    usual = {
        f"test_{kind}_{folder}_{name}"
        for kind in ("slow", "quick")
        for folder in ("unit", "store")
        for name in NAMES
    }
    first = {"store_a", "store_d", "unit_c"}  # of store_a to store_d, unit_a to unit_d
    assert ran[0] == fast | {f"test_slow_{name}" for name in first} | {
        "test_quick_store_a",
        "test_quick_store_d",
    }
    assert set.union(*ran) == usual and all(fast <= one for one in ran)
    assert _passed(tmp_path, {}) == usual
    long = {f"test_long_{folder}_{name}" for folder in ("unit", "store") for name in NAMES}
    assert _passed(tmp_path, {"PODYARD_TEST_LONG": "1"}) == usual | long


def _passed(folder: Path, changes: dict[str, str]) -> set[str]:
    done = run_module(folder, "tests.selection", "pytest", "-v", "-n", "0", changes=changes)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.split("::")[1].split()[0] for line in done.stdout.splitlines() if "PASSED" in line}
