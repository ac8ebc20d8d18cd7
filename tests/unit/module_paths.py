"""Print, as JSON, the paths under which this Python finds Podyard's modules and data. A test copies
this file to a
new folder and runs it there, so that nothing is found because of where it stands."""

from __future__ import annotations

import concurrent.futures
import importlib.resources
import json
import multiprocessing
import sys
import trace
import traceback
from pathlib import Path

import podyard.api.app
import podyard.migrations
import podyard.workers.kit.process_group
from podyard.base.errors import PodyardError
from podyard.pricing.cards import load_rate_card, shipped_cards
from podyard.scheduler.placement import Takeable
from podyard.web.kit.render import templates

RESOURCES = (
    ("podyard.web", "static/podyard.css"),
    ("podyard.pricing", f"rate_cards/{shipped_cards()[0]}.yaml"),
)


def files_of_modules() -> dict[str, str]:
    """Each module of Podyard that is loaded, and its `__file__`."""
    modules = {
        name: module for name, module in sys.modules.items() if name.partition(".")[0] == "podyard"
    }
    return {name: str(module.__file__) for name, module in modules.items()}


def describe(value: Takeable) -> tuple[Takeable, dict[str, str]]:
    """`value` as it has arrived in this process, and the modules that this process has loaded."""
    return value, files_of_modules()


def in_spawned_child(value: Takeable) -> tuple[Takeable, dict[str, str]]:
    """Return what `describe` returns in a child that shares nothing with this process but a
    pickle."""
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(describe, value).result()


def files_of_traceback() -> list[str]:
    """The files of Podyard that an error passes through: a card that is not a mapping is refused in
    `pricing`."""
    try:
        load_rate_card("[]")
    except PodyardError as error:
        frames = traceback.extract_tb(error.__traceback__)
        return [frame.filename for frame in frames if frame.filename != __file__]
    raise AssertionError("a card that is not a mapping was read")


def files_with_coverage() -> list[str]:
    """The files in which the standard library's `trace` counts lines while the rate cards are
    listed."""
    tracer = trace.Trace(count=1, trace=0)
    tracer.runfunc(shipped_cards)
    return sorted({file for file, _ in tracer.results().counts if "pricing" in Path(file).parts})


def main() -> None:
    value = Takeable(chips=4, cost=2)
    arrived, modules_of_child = in_spawned_child(value)
    folders = {package: importlib.resources.files(package) for package, _ in RESOURCES}
    page = templates().get_template("base.html").filename
    report = {
        "modules": files_of_modules(),
        "child": modules_of_child,
        "pickle": [arrived == value, type(arrived) is Takeable],
        "traceback": files_of_traceback(),
        "coverage": files_with_coverage(),
        "code": [podyard.api.app.create_app.__code__.co_filename],
        "resources": [str(folders[package].joinpath(name)) for package, name in RESOURCES]
        + [str(page)],
        "finders": [type(finder).__name__ for finder in sys.meta_path],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
