"""Every command has its recorded outputs, and prints them still."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from tests.unit.cli import golden_outputs
from tests.unit.cli.command_walk import walk
from tests.unit.cli.golden_outputs import NOT_RECORDED, PIPE, READS
from tests.unit.cli.golden_yard import open_golden_yard

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with open_golden_yard(tmp_path_factory.mktemp("golden")) as yard:
        yield golden_outputs.collect(yard)


@pytest.mark.slow
def test_outputs_are_as_recorded(outputs: dict[str, str]) -> None:
    old, new = golden_outputs.read(), golden_outputs.files_of(outputs)
    assert sorted(old) == sorted(new), golden_outputs.COMMAND
    for name, text in new.items():
        assert text == old[name], f"{name}: if this is meant, {golden_outputs.COMMAND}"


def test_every_command_has_a_golden_or_a_reason() -> None:
    ends = {path for path, command in walk() if not isinstance(command, click.Group)}
    recorded = golden_outputs.recorded_paths()
    assert ends - recorded - set(NOT_RECORDED) == set()
    assert set(NOT_RECORDED) - ends == set(), "there is no such command"
    assert recorded & set(NOT_RECORDED) == set(), "it has a golden, and needs no reason"


def test_a_pipe_gets_no_colours_no_bars_and_all_that_a_terminal_gets(
    outputs: dict[str, str],
) -> None:
    for line in READS:
        text = outputs[f"{line}: {PIPE}"]
        assert "\x1b" not in text and "\r" not in text, line
        assert "…" not in text, line
    assert "\x1b[32mREADY\x1b[0m" in outputs["tpu list: 80 columns"]
