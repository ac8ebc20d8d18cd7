"""How the YAML files of users are parsed, whichever they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, invalid
from podyard.domain import yaml_file
from podyard.domain.fault_file import read_faults
from podyard.domain.fleet_file import load_fleet
from podyard.pricing.cards import load_rate_card
from podyard.simulation import scenario
from podyard.testing.scenario import read_scenario

ROOT = Path(__file__).parents[2]


def _of_path(read: Callable[[Path], object]) -> Callable[[str, Path], object]:
    def from_text(text: str, folder: Path) -> object:
        path = folder / "file.yaml"
        path.write_text(text, encoding="utf-8")
        return read(path)

    return from_text


READERS: dict[str, Callable[[str, Path], object]] = {
    "fleet": lambda text, _: load_fleet(text),
    "card": lambda text, _: load_rate_card(text),
    "faults": lambda text, _: read_faults(text, "file"),
    "simulation": _of_path(scenario.read),
    "test": _of_path(lambda path: read_scenario(path, PlatformTime(0))),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", r"line [23]: not YAML: "),
        ("a: 1\nb: 2\na: 3\n", r", a: this key is there twice, in lines 1 and 3"),
        ("b: {c: 1, d: 2,\n c: 3}\n", r", c: this key is there twice, in lines 1 and 2"),
        ("[" * 5000, "not YAML"),
        ("a: 1\n---\nb: 2\n", r"line 2: not YAML: "),
    ],
    ids=["syntax", "key twice", "inner key twice", "too deep", "two documents"],
)
def test_what_cannot_be_read_is_refused_with_its_place(
    reader: Callable[[str, Path], object], text: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(PodyardError, match=told):
        reader(text, tmp_path)


def test_times_stay_texts_and_lines_are_those_of_the_file() -> None:
    file = yaml_file.parse("a:\n  - b: 2026-01-01\n  -\n    c: x\n", "file", invalid)
    assert file.data == {"a": [{"b": "2026-01-01"}, {"c": "x"}]}
    assert [
        file.line_of(path) for path in ("a", "a[0].b", "a[1].c", "a[1].missing", "missing")
    ] == [1, 2, 4, 4, 1]
    assert yaml_file.parse("", "file", invalid).data is None


def test_the_modules_of_the_product_parse_yaml_in_one_place() -> None:
    parsing = ("yaml.load(", "yaml.safe_load(", "yaml.compose(", "yaml.Loader", "SafeLoader")
    folders = [ROOT / name for name in ("podyard", "api", "scheduler", "workers", "pricing", "web")]
    texts = {
        path: path.read_text(encoding="utf-8")
        for folder in folders
        for path in folder.rglob("*.py")
    }
    assert {path.name for path, text in texts.items() if any(word in text for word in parsing)} == {
        "yaml_file.py"
    }
