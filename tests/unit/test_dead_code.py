"""The check for dead code finds what is planted, and lets pass what frameworks and users call."""

from __future__ import annotations

import pytest

from tests.dead_code import KEPT, Code, product

MAIN = """
from app import tools
from app.tools import Record, useful as renamed

@router.get("/")
def route() -> Record:
    return renamed(Record(1))

tools.other()
"""
TOOLS = '''
import dataclasses
import enum
from http.server import BaseHTTPRequestHandler

LIMIT = 3

@dataclasses.dataclass
class Record:
    field: int

    def method(self):
        return self.field

def useful(record):
    """Never calls `dead`."""
    return record.method()

def other():
    return LIMIT

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        pass

HANDLERS = [Handler]
'''


def dead(tools: str, main: str = MAIN) -> list[str]:
    sources = {
        "app": ("app/__init__.py", ""),
        "app.main": ("app/main.py", main),
        "app.tools": ("app/tools.py", tools),
    }
    return [
        definition.name for definition in Code(sources, package="app").dead({"app.tools:HANDLERS"})
    ]


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        ("", []),
        ("def unused():\n    return useful(None)", ["unused"]),
        ("def calls_itself():\n    return calls_itself()", ["calls_itself"]),
        ("def one():\n    return two()\ndef two():\n    return one()", ["one", "two"]),
        ("UNUSED = 1", ["UNUSED"]),
        ("_A, LIMIT_2 = 1, 2\ndef f():\n    return _A", ["LIMIT_2", "_A", "f"]),
        ("class Unused:\n    def method(self): pass", ["Unused"]),
        (
            "@dataclasses.dataclass\nclass Never:\n    field: int\nUnion = Record | Never",
            ["Never", "Union"],
        ),
        ("@dataclasses.dataclass\nclass Never:\n    field: int\nx: Never", ["Never", "x"]),
        ("class Handler2(Handler):\n    def do_POST(self): pass\nHANDLERS += [Handler2]", []),
        ("@register\ndef hook(): pass", []),
    ],
)
def test_what_nothing_reaches_is_found(plant: str, found: list[str]) -> None:
    assert dead(f"{TOOLS}\n{plant}\n") == found


@pytest.mark.parametrize(
    ("member", "found"),
    [
        ("unread: int = 0", ["Record.unread"]),
        ("def unused(self): pass", ["Record.unused"]),
        ("@property\n    def unused(self): pass", ["Record.unused"]),
        ("def __len__(self): return 0", []),
    ],
)
def test_members_that_nothing_reads_are_found(member: str, found: list[str]) -> None:
    assert dead(TOOLS.replace("    field: int\n", f"    field: int\n    {member}\n", 1)) == found


def test_names_are_followed_through_imports_and_tables_of_names() -> None:
    other = MAIN.replace("useful as renamed", "other as renamed").replace("tools.other()", "")
    assert dead(TOOLS, other) == ["Record.field", "Record.method", "useful"]
    plant = f"{TOOLS}\ndef factory(): pass\n"
    assert dead(plant) == ["factory"]
    assert dead(plant, f'{MAIN}\nTABLE = ("app.tools", "factory")\nload(TABLE)\n') == []


@pytest.mark.slow
def test_a_function_planted_in_the_product_is_found() -> None:
    plant = "def planted_and_never_called() -> int:\n    return 1\n"
    found = product({"podyard.control.planted": plant}).dead(KEPT)
    assert [(one.module, one.name) for one in found] == [
        ("podyard.control.planted", "planted_and_never_called")
    ]


@pytest.mark.slow
def test_each_exception_is_needed() -> None:
    code = product()
    assert code.dead(KEPT) == []
    for pattern in KEPT:
        assert code.dead(other for other in KEPT if other != pattern), pattern
