"""The metadata server of a host: what it says (a tree, pure), and what it answers.

Paths, headers and forms are those of Compute Engine's metadata server, as google-auth, JAX and
torch_xla ask for them: text leaves, directories whose entries end in a newline, `?recursive=true`
as JSON in camelCase, ETags, and `?wait_for_change=true`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from podyard.base.errors import PodyardError
from podyard.domain.host import (
    HOST_KEYS_NAMESPACE,
    NodeFacts,
    guest_attributes_allowed,
    tpu_env_text,
    worker_network_endpoints,
)
from podyard.domain.instances import guest

ROOT = "computeMetadata"
VALUE_BYTES_MAX = 32 << 10  # of one guest attribute
GUEST_BYTES_MAX = 256 << 10  # of all guest attributes of a host (Google's limit)
GUEST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
WAIT_SECONDS_MAX = 3600.0  # a client that waits for a change for longer is answered, and asks again

# hands out (access token, seconds that it still lives)
Tokens = Callable[[], Awaitable[tuple[str, int]]]


@dataclasses.dataclass(frozen=True, slots=True)
class Lines:
    """A leaf of several lines; a list in JSON."""

    items: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class JsonList:
    """A leaf that is a JSON list even as text."""

    items: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Secret:
    """A leaf that is made when it is asked for, and left out of recursive answers."""


Tree = dict[str, Any] | list[Any] | str | int | Lines | JsonList | Secret


@dataclasses.dataclass
class MetadataSource:
    """The source of a host's metadata server; `changed` wakes those who wait."""

    facts: NodeFacts
    index: int
    instance_id: int
    guest: dict[str, dict[str, str]]
    tokens: Tokens
    guest_changed: Callable[[], None] = lambda: None
    _event: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def on_change(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()

    def tree(self) -> dict[str, Any]:
        node, index = self.facts, self.index
        number = node.project_number
        name = node.host_name(index)
        event = "TERMINATE_ON_HOST_MAINTENANCE" if index in node.maintenance_workers else "NONE"
        account = {
            "aliases": Lines(("default",)),
            "email": node.service_account,
            "identity": Secret(),
            "scopes": Lines(node.scopes),
            "token": Secret(),
        }
        instance: dict[str, Any] = {
            "attributes": self._attributes(),
            "cpu-platform": "Unknown CPU Platform",
            "description": node.description,
            "guest-attributes": {
                space: dict(values) for space, values in sorted(self.guest.items())
            },
            "hostname": f"{name}.{node.zone}.c.{node.project}.internal",
            "id": node.instance_numbers[index] if node.instance_numbers else self.instance_id,
            "image": f"projects/podyard/global/images/{node.runtime_version}",
            "machine-type": f"projects/{number}/machineTypes/{_machine_type(node)}",
            "maintenance-event": event,
            "name": name,
            "network-interfaces": [self._interface()],
            "preempted": _flag(node.reclaimed),
            "scheduling": {
                "automatic-restart": _flag(not node.preemptible),
                "on-host-maintenance": "TERMINATE",
                "preemptible": _flag(node.preemptible),
            },
            "service-accounts": {"default": account, node.service_account: account},
            "tags": JsonList(node.tags),
            "zone": f"projects/{number}/zones/{node.zone}",
        }
        if node.upcoming_maintenance is not None:
            instance["upcoming-maintenance"] = {
                k: _text(v) for k, v in sorted(node.upcoming_maintenance.items())
            }
        if not self._guest_enabled():
            instance["guest-attributes"] = {
                space: values
                for space, values in instance["guest-attributes"].items()
                if space == HOST_KEYS_NAMESPACE
            }
        attributes = dict(sorted(node.project_metadata.items()))
        project = {
            "attributes": attributes,
            "numeric-project-id": number,
            "project-id": node.project,
        }
        return {
            "instance": instance,
            "project": project,
            "universe": {"universe-domain": "googleapis.com"},
        }

    def put(self, namespace: str, key: str, value: str) -> str | None:
        """Sets a guest attribute; returns what is wrong with it, else None."""
        size = sum(len(k) + len(v) for values in self.guest.values() for k, v in values.items())
        size -= len(self.guest.get(namespace, {}).get(key, ""))
        if (
            len(value.encode()) > VALUE_BYTES_MAX
            or size + len(key) + len(value.encode()) > GUEST_BYTES_MAX
        ):
            return (
                f"a value has at most {VALUE_BYTES_MAX} bytes, and all of a host at most "
                f"{GUEST_BYTES_MAX}"
            )
        self.guest.setdefault(namespace, {})[key] = value
        self.guest_changed()
        self.on_change()
        return None

    def remove(self, namespace: str, key: str) -> bool:
        if self.guest.get(namespace, {}).pop(key, None) is None:
            return False
        if not self.guest[namespace]:
            del self.guest[namespace]
        self.guest_changed()
        self.on_change()
        return True

    def _guest_enabled(self) -> bool:
        return guest_attributes_allowed(self.facts, "")

    def _attributes(self) -> dict[str, Any]:
        node, index = self.facts, self.index
        ours = (
            guest.attributes(node, index)
            if node.instance_names
            else {
                "accelerator-type": node.accelerator_type,
                "agent-worker-number": str(index),
                "instance-id": node.node_id,
                "tpu-env": tpu_env_text(node, index),
                "worker-network-endpoints": worker_network_endpoints(node),
            }
        )
        return dict(sorted({**node.metadata, **ours}.items()))

    def _interface(self) -> dict[str, Any]:
        node, address = self.facts, self.facts.internal_ips[self.index]
        configs = (
            [{"external-ip": node.external_ips[self.index], "type": "ONE_TO_ONE_NAT"}]
            if node.external_ips
            else []
        )
        return {
            "access-configs": configs,
            "ip": address,
            # As Google makes them: 42:01 and the four bytes of the address.
            "mac": ":".join(["42", "01", *(f"{int(part):02x}" for part in address.split("."))]),
            "network": f"projects/{node.project_number}/networks/{node.network}",
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str
    content_type: str = "text/plain"
    headers: tuple[tuple[str, str], ...] = ()


def find(tree: Tree, parts: list[str]) -> Tree | None:
    """Return what lies at a path; None when nothing does."""
    for part in parts:
        if isinstance(tree, list):
            if not part.isdigit() or int(part) >= len(tree):
                return None
            tree = tree[int(part)]
        elif isinstance(tree, dict) and part in tree:
            tree = tree[part]
        else:
            return None
    return tree


def text_of(node: Tree) -> str:
    """A leaf's text, or a directory's entries, one a line."""
    if isinstance(node, dict):
        return "".join(
            f"{name}{'/' if _is_folder(child) else ''}\n" for name, child in node.items()
        )
    if isinstance(node, list):
        return "".join(f"{index}/\n" for index in range(len(node)))
    if isinstance(node, JsonList):
        return json.dumps(node.items)
    return "".join(f"{line}\n" for line in node.items) if isinstance(node, Lines) else str(node)


def json_of(node: Tree, *, as_they_are: bool = False) -> Any:
    """JSON of a subtree: keys in camelCase, but for attributes, which stay `as_they_are`."""
    if isinstance(node, dict):
        return {
            name if as_they_are or "@" in name else _camel(name): json_of(
                child, as_they_are=as_they_are or name in ("attributes", "guest-attributes")
            )
            for name, child in node.items()
            if not isinstance(child, Secret)
        }
    if isinstance(node, list):
        return [json_of(child, as_they_are=as_they_are) for child in node]
    if isinstance(node, Lines | JsonList):
        return list(node.items)
    return node


def flat_text_of(node: Tree, path: str = "") -> str:
    """`?recursive=true&alt=text`: a line `path value` for each leaf."""
    if isinstance(node, dict | list):
        named = node.items() if isinstance(node, dict) else enumerate(node)
        found = (
            (f"{path}/{name}".lstrip("/"), child)
            for name, child in named
            if not isinstance(child, Secret)
        )
        return "".join(flat_text_of(child, where) for where, child in found)
    return f"{path} {text_of(node).rstrip()}\n"


class MetadataHandler:
    """Answers requests about one host."""

    def __init__(self, source: MetadataSource) -> None:
        self._source = source

    async def answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        url = urlsplit(target)
        query = {
            name: values[-1] for name, values in parse_qs(url.query, keep_blank_values=True).items()
        }
        path = url.path
        if self._source.index in self._source.facts.metadata_down:
            return Answer(503, "The metadata server is not available.\n")
        if path in ("/", f"/{ROOT}", f"/{ROOT}/"):
            # google-auth looks here whether this is a metadata server at all; no header is needed
            # for that.
            return Answer(200, f"{ROOT}/\n" if path == "/" else "v1/\n")
        if "x-forwarded-for" in headers:
            return _refusal(403, path, "Requests with an X-Forwarded-For header are not answered.")
        if headers.get("metadata-flavor", "").lower() != "google":
            return _refusal(403, path, "Missing Metadata-Flavor:Google header.")
        parts = [unquote(part) for part in path.split("/") if part]
        if parts[:2] != [ROOT, "v1"]:
            return _not_found(path)
        parts = parts[2:]
        if method not in ("GET", "HEAD"):
            return self._change(method, path, parts, body)
        if (
            parts[:2] == ["instance", "service-accounts"]
            and len(parts) == 4
            and parts[3] in ("token", "identity")
        ):
            return await self._credential(path, parts, query)
        if parts[:2] == ["instance", "guest-attributes"] and not self._may_read_guest(parts):
            return _guest_disabled(path)
        return await self._value(path, parts, query)

    async def _value(self, path: str, parts: list[str], query: Mapping[str, str]) -> Answer:
        if query.get("wait_for_change", "").lower() == "true":
            await self._wait_for_change(parts, query)
        found = find(self._source.tree(), parts)
        if found is None or isinstance(found, Secret):
            return _not_found(path)
        recursive = query.get("recursive", "").lower() == "true"
        folder = _is_folder(found)
        if folder and not recursive and not path.endswith("/"):
            return Answer(301, "", "text/html; charset=UTF-8", (("Location", f"{path}/"),))
        headers = (("ETag", _etag(found)),)
        if query.get("alt") == "json" or (recursive and query.get("alt") != "text"):
            plain = (
                parts[-1:] in (["attributes"], ["guest-attributes"]) or "guest-attributes" in parts
            )
            return Answer(
                200, json.dumps(json_of(found, as_they_are=plain)), "application/json", headers
            )
        return Answer(
            200, flat_text_of(found) if folder and recursive else text_of(found), headers=headers
        )

    async def _wait_for_change(self, parts: list[str], query: Mapping[str, str]) -> None:
        """Until the value is another than `last_etag` (not given: than it is now), or `timeout_sec`
        is over."""
        last = query.get("last_etag") or _etag(find(self._source.tree(), parts))
        seconds = min(_seconds(query.get("timeout_sec", "")), WAIT_SECONDS_MAX)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while _etag(find(self._source.tree(), parts)) == last:
                    await self._source.wait()

    async def _credential(self, path: str, parts: list[str], query: Mapping[str, str]) -> Answer:
        if find(self._source.tree(), parts[:3]) is None:
            return _not_found(path)
        if parts[3] == "identity":
            if not query.get("audience"):
                return Answer(400, "non-empty audience parameter required", "text/html")
            return Answer(501, "Podyard issues access tokens, and no identity tokens", "text/html")
        try:
            token, seconds = await self._source.tokens()
        except PodyardError as error:
            return Answer(error.code.http_status, error.message)
        answer = {"access_token": token, "expires_in": seconds, "token_type": "Bearer"}
        return Answer(200, json.dumps(answer), "application/json")

    def _change(self, method: str, path: str, parts: list[str], body: bytes) -> Answer:
        if parts[:2] != ["instance", "guest-attributes"] or method not in ("PUT", "DELETE"):
            return Answer(405, "Method Not Allowed", "text/html; charset=UTF-8")
        if len(parts) != 4 or not all(GUEST_NAME.fullmatch(part) for part in parts[2:]):
            return Answer(
                400,
                "A guest attribute is guest-attributes/NAMESPACE/KEY",
                "text/html; charset=UTF-8",
            )
        namespace, key = parts[2:]
        if not guest_attributes_allowed(self._source.facts, namespace):
            return _guest_disabled(path)
        if method == "DELETE":
            return Answer(204, "") if self._source.remove(namespace, key) else _not_found(path)
        problem = self._source.put(namespace, key, body.decode("utf-8", "replace"))
        return Answer(200, "") if problem is None else Answer(400, problem)

    def _may_read_guest(self, parts: list[str]) -> bool:
        return guest_attributes_allowed(self._source.facts, parts[2] if len(parts) > 2 else "")


def _machine_type(node: NodeFacts) -> str:
    if node.machine_type:
        return node.machine_type
    chips = f"{node.kind.chips_per_host}t"
    return f"{node.kind.generation.machine_family}-{chips}"


def _refusal(status: int, path: str, why: str) -> Answer:
    text = (
        "Your client does not have permission to get URL "
        f"<code>{_escape(path)}</code> from this "
        f"server. {why}"
    )
    return Answer(status, _page(status, text), "text/html; charset=UTF-8")


def _not_found(path: str) -> Answer:
    text = f"The requested URL <code>{_escape(path)}</code> was not found on this server."
    return Answer(404, _page(404, text), "text/html; charset=UTF-8")


def _guest_disabled(path: str) -> Answer:
    return _refusal(403, path, "Guest attributes endpoint access is disabled.")


def _page(status: int, text: str) -> str:
    title = f"Error {status} ({HTTPStatus(status).phrase})!!1"
    return (
        f"<!DOCTYPE html>\n<html lang=en>\n<meta charset=utf-8>\n<title>{title}</title>\n"
        f"<p><b>{status}.</b> <ins>That’s an error.</ins>\n<p>{text}  <ins>That’s all we "
        "know.</ins>\n"
    )


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _etag(node: Tree | None) -> str:
    return hashlib.sha256(json.dumps(json_of({} if node is None else node)).encode()).hexdigest()[
        :16
    ]


def _is_folder(node: Tree) -> bool:
    return isinstance(node, dict | list)


def _camel(name: str) -> str:
    first, *rest = re.split(r"[-_]", name)
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _flag(value: bool) -> str:
    return str(value).upper()


def _text(value: object) -> str:
    return _flag(value) if isinstance(value, bool) else str(value)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return WAIT_SECONDS_MAX
    return seconds if seconds >= 0 else WAIT_SECONDS_MAX
