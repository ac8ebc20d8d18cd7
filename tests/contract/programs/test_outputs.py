"""The outputs of `podyard run` in the documents."""

from __future__ import annotations

import pytest

from podyard.cli.programs.run_program import NO_STEP_CODE
from tests import doc_outputs
from tests.tpu_program import PROGRAMS, run

pytest.importorskip("jax", reason="programs under test import JAX")
PAGE = "howto/programs.md"


def test_the_comparison_of_three_slices() -> None:
    types = "v5p-128,v5litepod-256,v6e-64"
    done = run(f"--tpu {types} --dry-run --tokens 1e12", str(PROGRAMS / "llama.py"), "2")
    assert done.returncode == 0, done.stderr
    doc_outputs.check(PAGE, "comparison", _from(done.stderr, "TYPE"))


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [("failing", "", 1), ("unpriced", " --dry-run", NO_STEP_CODE)],
)
def test_a_report_without_a_price(name: str, options: str, code: int) -> None:
    done = run(f"--tpu v5litepod-8{options}", str(PROGRAMS / "reports" / f"{name}.py"))
    assert done.returncode == code, done.stderr
    report = _from(done.stderr, "podyard: v5litepod-8")
    assert "1,000 steps" not in report and ("$" in report) == (name == "failing")
    doc_outputs.check(PAGE, name, report)


def _from(text: str, start: str) -> str:
    """Return the text from the line that begins so."""
    return text[text.index(f"\n{start}") + 1 if not text.startswith(start) else 0 :]
