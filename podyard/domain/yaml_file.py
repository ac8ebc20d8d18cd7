"""Parsers of YAML for fleets, fault rules, scenarios and rate cards.

One pass gives the data and the place of everything in it. A key that stands twice is refused:
PyYAML alone keeps the last one in silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import Any

import yaml
from typing_extensions import override

from podyard.base.errors import PodyardError

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclasses.dataclass(frozen=True, slots=True)
class YamlFile:
    data: Any
    root: yaml.Node | None

    def line_of(self, path: str) -> int:
        """Return where `faults[2].match.zone` is in the file; where it is missing, the line of what
        it is missing in."""
        node, line = self.root, 1
        for part in path.replace("[", ".").replace("]", "").split("."):
            if (
                isinstance(node, yaml.SequenceNode)
                and part.isdigit()
                and int(part) < len(node.value)
            ):
                node = node.value[int(part)]
                line = node.start_mark.line + 1
                continue
            named = node.value if isinstance(node, yaml.MappingNode) else ()
            found = next(((key, value) for key, value in named if key.value == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        return line


def parse(
    text: str, name: str, refused: Callable[[str], PodyardError], *, has_times: bool = False
) -> YamlFile:
    """The one document of `text`; raises what `refused` makes of a message that begins with `name`.
    Times stay the
    texts that they are, unless the file `has_times`."""
    loader = (_Loader if has_times else _TextLoader)(text)
    try:
        root = loader.get_single_node()
        return YamlFile(None if root is None else loader.construct_document(root), root)
    except _TwiceError as error:
        raise refused(f"{name}, {error}") from None
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise refused(f"{name}: line {line}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise refused(f"{name}: not YAML: {error}") from error
    finally:
        loader.dispose()


class _TwiceError(Exception):
    """A key that stands twice, and where."""


class _Loader(_SafeLoader):  # type: ignore[misc]  # which of the two it is shows at run time only
    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[object, int] = {}
        for key_node, _ in node.value:
            key = (key_node.tag, key_node.value) if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in lines:
                both = f"lines {lines[key]} and {key_node.start_mark.line + 1}"
                raise _TwiceError(f"{key_node.value}: this key is there twice, in {both}")
            lines[key] = key_node.start_mark.line + 1
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found


class _TextLoader(_Loader):
    """Times stay the texts that they are."""


_TextLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}
