"""Data of every released revision of the tables goes up to this one: its bills are the same, and it
goes on.

The data are a yard with invoiced months, taken down to the revision: what that revision could hold
of it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import shutil
from pathlib import Path

import pytest

from podyard import migrations
from podyard.base.clock import ManualClock
from podyard.base.rng import Streams
from podyard.control.checks import fsck
from podyard.db.store.unit_of_work import Database
from podyard.db.views import copies
from podyard.domain.fleet_file import load_fleet
from podyard.pricing.current_card import default_rate_card
from tests.builders import Play
from tests.store import invoiced_yard

NODES = 12
VERSIONS = Path(migrations.__file__).parent / "versions"
# What a process of the release before does not see: it may run while these are made (rolling
# upgrades).
ADDITIVE = {
    "add_column",
    "create_table",
    "create_index",
    "execute",
    "get_bind",
    "batch_alter_table",
    "f",
}
# revisions from here on are made while loops and agents of the release before go on
FIRST_ADDITIVE = "0033"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    invoiced_yard.make(folder, NODES)
    return folder


def _documents(path: Path) -> list[bytes]:
    with contextlib.closing(
        Database(f"sqlite:///{path}", ManualClock(invoiced_yard.END))
    ) as database:
        return [invoice.document for invoice in invoiced_yard.issued(database)]


# Invoices came with 0009; before, there is nothing to compare but nodes and their history.
@pytest.mark.parametrize("revision", [one for one in migrations.KNOWN if one >= "0009"])
def test_a_yard_of_every_released_revision_is_upgraded_with_its_bills(
    yard: Path, tmp_path: Path, revision: str
) -> None:
    path = tmp_path / "podyard.db"
    shutil.copy(yard / "podyard.db", path)
    with copies.open_engine(f"sqlite:///{path}") as engine:
        migrations.migrate(engine, revision)
        assert migrations.current(engine) == revision
    clock = ManualClock(invoiced_yard.END)
    with contextlib.closing(Database(f"sqlite:///{path}", clock, Streams(3))) as database:
        migrations.upgrade(database)
        fleet = load_fleet((yard / "fleet.yaml").read_text())
        assert database.read(lambda uow: fsck.check(uow, fleet, default_rate_card())) == []
        play = Play(database, clock, fleet)
        play.turn(60)
        assert "READY" in play.states().values()
    assert _documents(path) == _documents(yard / "podyard.db")


def _operations(path: Path) -> set[str]:
    """The names of what `upgrade` calls on `op` and on batches, apart from what takes nothing
    away."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (upgrade,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "upgrade"
    )
    calls = (
        node.func
        for node in ast.walk(upgrade)
        if isinstance(node, ast.Call) and not _takes_nothing(node)
    )
    return {call.attr for call in calls if isinstance(call,
        ast.Attribute) and isinstance(call.value, ast.Name)
            and call.value.id in ("op", "batch")}  # fmt: skip


def _takes_nothing(call: ast.Call) -> bool:
    """Return whether it makes room for longer texts, so that what a process of the release before
    writes still fits; or drops an index that is not unique, which no statement names."""
    if ast.unparse(call.func) == "op.drop_index":
        return ast.literal_eval(call.args[0]) not in _unique_indexes()
    words = {word.arg: ast.unparse(word.value) for word in call.keywords}
    after, before = words.pop("type_", ""), words.get("existing_type", "")
    widens = after == "sa.Text()" or 0 < _length(before) <= _length(after)
    return widens and words.keys() <= {"existing_type", "existing_nullable"}


def _length(column_type: str) -> int:
    match = re.fullmatch(r"sa\.String\((?:length=)?(\d+)\)", column_type)
    return 0 if match is None else int(match[1])


@functools.cache
def _unique_indexes() -> frozenset[str]:
    calls = [
        call
        for path in VERSIONS.rglob("0*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    return frozenset(
        ast.literal_eval(call.args[0])
        for call in calls
        if isinstance(call,
            ast.Call) and any(ast.unparse(word) == "unique=True" for word in call.keywords)
        and ast.unparse(call.func).endswith(".create_index")
    )  # fmt: skip


def _required_columns(path: Path) -> list[str]:
    """Columns that `upgrade` adds to tables, and that a process of the release before could not
    fill."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (upgrade,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "upgrade"
    )
    found = []
    for node in ast.walk(upgrade):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_column"
        ):
            column = node.args[-1]
            given = (
                {word.arg: ast.unparse(word.value) for word in column.keywords}
                if isinstance(column, ast.Call)
                else {}
            )
            if given.get("nullable") == "False" and "server_default" not in given:
                found.append(ast.unparse(column))
    return found


def test_new_revisions_only_add_so_that_processes_of_the_release_before_go_on() -> None:
    new = [path for path in sorted(VERSIONS.rglob("0*.py")) if path.name[:4] >= FIRST_ADDITIVE]
    assert new
    assert {path.name: wrong for path in new if (wrong := _operations(path) - ADDITIVE)} == {}
    assert {path.name: wrong for path in new if (wrong := _required_columns(path))} == {}


def test_a_revision_that_takes_away_or_demands_is_found(tmp_path: Path) -> None:
    path = tmp_path / "0099_bad.py"
    path.write_text("def upgrade():\n    op.drop_index('ix_nodes_place', 'nodes')\n")
    assert _operations(path) - ADDITIVE == set()
    path.write_text(
        "def upgrade():\n"
        "    op.drop_column('nodes', 'zone')\n"
        "    op.drop_index('ix_state_changes_resource', 'state_changes')\n"
        "    op.add_column('nodes', sa.Column('x', sa.Text(), nullable=False))\n"
        "    op.add_column('nodes', sa.Column('y', sa.Text(), nullable=False, server_default=''))\n"
    )
    assert _operations(path) - ADDITIVE == {"drop_column", "drop_index"}
    assert len(_required_columns(path)) == 1


def test_every_revision_is_in_the_chain_once() -> None:
    names = sorted(path.name[:4] for path in VERSIONS.rglob("0*.py"))
    assert sorted(migrations.KNOWN) == names
