"""The pytest plugin: a fixture `podyard`, a new Podyard for each test.

Settings in pytest's ini file (`podyard_fleet`, `podyard_clock`, `podyard_rate`, `podyard_scope`,
...) hold for all tests, `@pytest.mark.podyard(...)` for one. After a test that passed the
invariants are checked, and a broken one fails it. Everything heavy is imported when a test asks for
the fixture.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from podyard.testing.options import Options
    from podyard.testing.stack import Podyard

SCOPES = ("function", "class", "module", "package", "session")
_TEXTS = {
    "fleet": "fleet file, relative to pytest's root folder",
    "clock": "virtual (the default), local or system",
    "rate": (
        "platform seconds per real second of a virtual clock (0: it stands still until it "
        "is advanced)"
    ),
    "start": "platform time at which a test begins, as in 2026-03-01T00:00:00Z",
    "seed": "seed of ids and of faults that happen by chance",
    "location": "zone that the fixture's paths and variables name",
    "scenario": (
        "scenario file whose faults stand from the beginning, relative to pytest's root folder"
    ),
}
_FLAGS = {
    "env": ("whether PODYARD_*, CLOUDSDK_* and GOOGLE_* variables point to it", False),
    "fsck": ("whether a broken invariant fails the test after which it is seen", True),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "podyard_scope", f"scope of the fixture podyard: {', '.join(SCOPES)}", default="function"
    )
    for name, text in _TEXTS.items():
        parser.addini(f"podyard_{name}", text, default=None)
    for name, (text, default) in _FLAGS.items():
        parser.addini(f"podyard_{name}", text, type="bool", default=default)


def pytest_configure(config: pytest.Config) -> None:
    names = ", ".join((*_TEXTS, *_FLAGS))
    config.addinivalue_line("markers", f"podyard(...): options of the fixture podyard: {names}")


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    del fixture_name
    found = config.getini("podyard_scope")
    if found not in SCOPES:
        raise pytest.UsageError(
            f"podyard_scope is {found!r}: it must be one of {', '.join(SCOPES)}"
        )
    return found


@pytest.fixture(scope=_scope)
def podyard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Podyard]:
    """A Podyard for the test: `.url`, `.token`, `.env`, `.client()`, `.advance("30d")`,
    `.preempt(node)`, `.fault(effect, ...)`, `.scenario(file)`, `.fsck()`."""
    options = _options(request)
    from podyard.testing.stack import open_podyard

    with (
        open_podyard(tmp_path_factory.mktemp("podyard"), options) as found,
        pytest.MonkeyPatch.context() as patch,
    ):
        if options.env:
            for name, value in found.env.items():
                patch.setenv(name, value)
        yield found


def _options(request: pytest.FixtureRequest) -> Options:
    from podyard.base.errors import PodyardError
    from podyard.testing.options import read_options

    config = request.config
    settings = {name: config.getini(f"podyard_{name}") for name in (*_TEXTS, *_FLAGS)}
    marker = request.node.get_closest_marker("podyard")
    if marker is not None and marker.args:
        pytest.fail(
            "@pytest.mark.podyard takes options by their names: fleet=..., rate=...", pytrace=False
        )
    try:
        if marker is None:
            return read_options(_options_of(settings, {}, config.rootpath))
        return read_options(
            _options_of(settings, marker.kwargs, config.rootpath), request.path.parent
        )
    except PodyardError as error:
        pytest.fail(f"podyard: {error.message}", pytrace=False)


def _options_of(settings: dict[str, Any], marked: dict[str, Any], root: Path) -> dict[str, Any]:
    """Return what the ini file says, with its files found from the root folder, and what the marker
    says instead."""
    found = {
        name: value
        for name, value in settings.items()
        if value not in (None, "") and name not in marked
    }
    for name in ("fleet", "scenario"):
        if name in found:
            found[name] = root / found[name]
    return {**found, **marked}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """After a test that passed and had a Podyard: a broken invariant fails it."""
    result = yield
    found = getattr(item, "funcargs", {}).get("podyard")
    if found is not None and getattr(getattr(found, "options", None), "fsck", False):
        __tracebackhide__ = True
        found.check()
    return result
