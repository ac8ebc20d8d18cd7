"""Actions on the selected rows of a list: asked once more, done to each, and what was refused is
said."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from podyard.base.errors import invalid
from podyard.web.kit.formats import count
from podyard.web.kit.lists import attempt_all
from podyard.web.kit.render import page, see_other_with_notice


@dataclasses.dataclass(frozen=True, slots=True)
class Bulk:
    """`noun` in the singular; `text` says what follows from it; `done` follows the count in the
    notice."""

    label: str
    noun: str
    text: str
    done: str
    act: Callable[[str, str], object]


def act_on_selected(
    request: Request,
    project: str,
    list_url: str,
    fields: Mapping[str, str],
    picked: Sequence[tuple[str, str]],
    verbs: Mapping[str, Bulk],
) -> Response:
    """The answer to a list's form: the question first, then what came of it."""
    bulk = verbs.get(fields.get("verb", ""))
    if bulk is None:
        raise invalid(f"unknown action {fields.get('verb', '')!r}: use {', '.join(verbs)}", "verb")
    if not picked:
        return see_other_with_notice(list_url, f"Nothing is selected. Select a {bulk.noun} first.")
    shown: dict[str, Any] = {
        "project": project,
        "section": f"{bulk.noun}s",
        "bulk": bulk,
        "verb": fields["verb"],
        "list_url": list_url,
    }
    if "confirmed" not in fields:
        return page(request, "selection.html", picked=picked, refused=[], **shown)
    refused = attempt_all(picked, bulk.act)
    if refused:
        return page(
            request,
            "selection.html",
            status=409,
            picked=[],
            refused=refused,
            tried=len(picked),
            **shown,
        )
    return see_other_with_notice(list_url, f"{count(len(picked), bulk.noun)} {bulk.done}.")
