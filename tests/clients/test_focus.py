"""The official FOCUS validator reads our export: it reports what its own model gets wrong, and
nothing else.

Of its model 1.2.0.1, three rules have conditions that are empty or inverted, or are not read: they
fail on correct rows of any export, and five more that are made of them with them. A fourth, which
is read in the same wrong way, fails as soon as there is a node of a reservation. The validator ends
with 0 whatever it finds, so that its lines are read.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from podyard.pricing.export import ExportSource, rows
from podyard.pricing.export_focus import as_focus
from tests.clients.client import ENVIRONMENTS
from tests.unit.pricing.export_source import NODES, source

SECONDS_MAX = 120.0  # it takes 9 s on an idle machine
COLUMNS_CHECKED_MIN = 350  # rules that pass: fewer would mean that it looked at something else
FALSE_FAILURES = {
    "CapacityReservationStatus-C-000-C",
    "CapacityReservationStatus-C-002-C",
    "CapacityReservationStatus-C-004-C",
    "CommitmentDiscountStatus-C-000-C",
    "CommitmentDiscountStatus-C-002-C",
    "CommitmentDiscountStatus-C-004-C",
    "CostAndUsage-D-000-M",
    "CostAndUsage-D-002-M",
    "InvoiceId-C-004-C",
}
# "MUST be null when CapacityReservationId is null": its condition is left aside, so that no row may
# have a status.
OF_RESERVATIONS = {"CapacityReservationStatus-C-003-C"}
_ALL = ("--applicability-criteria", "ALL")  # of the rules that not everybody has to keep
_TOTAL = re.compile(r"Total: (\d+) \| Pass: (\d+) \| Fail: (\d+) \| Skipped: (\d+)")
_FAIL = re.compile(r"^\S+ ([A-Za-z]+-[A-Z]-\d{3}-[A-Z]): FAIL", re.MULTILINE)
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


def _validate(data: bytes, folder: Path) -> tuple[int, set[str]]:
    """(rules that pass, names of those that fail)."""
    home = ENVIRONMENTS / "focus"
    program = home / "bin" / "focus-validator"
    made = (home / ".made").is_file()
    if not made:
        # No failure even where all must run: `make real` makes it where there is a Python 3.12.
        pytest.skip("the environment focus of `make real` is not there: it needs Python 3.12")
    file = folder / "focus.csv"
    file.write_bytes(data)
    (packages,) = home.glob("lib/python3.*/site-packages")
    done = subprocess.run(
        [program, "--data-file", file, "--validate-version", "1.2", "--block-download", *_ALL],
        cwd=packages,  # it reads its currency codes from there
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    total = _TOTAL.search(done.stdout)
    assert total is not None, done.stdout + done.stderr
    failed = set(_FAIL.findall(done.stdout))
    assert len(failed) == int(total[3]), done.stdout
    return int(total[2]), failed


def _export(found: ExportSource) -> bytes:
    return b"".join(as_focus([(found, rows(found, "day"))]))


def test_only_its_known_false_failures_are_left(tmp_path: Path) -> None:
    """Commitments, credits, spot, a correction, tax, euros and a month in which clocks are
    moved."""
    passed, failed = _validate(_export(source(NODES[:4], by_job=True)), tmp_path)
    assert failed == FALSE_FAILURES
    assert passed >= COLUMNS_CHECKED_MIN


def test_a_node_of_a_reservation_adds_one_false_failure(tmp_path: Path) -> None:
    _, failed = _validate(_export(source(NODES)), tmp_path)
    assert failed == FALSE_FAILURES | OF_RESERVATIONS


def test_a_wrong_file_is_noticed(tmp_path: Path) -> None:
    data = _export(source(NODES[:4])).replace(b",EUR,", b",Euro,").replace(b",Hours,", b",,")
    _, failed = _validate(data, tmp_path)
    assert failed > FALSE_FAILURES
    assert any(name.startswith("BillingCurrency") for name in failed)
