"""What is Google's: names, enum values, methods, descriptors, error texts and JSON, as Podyard
serves them.

`tests/data/google_texts.json` keeps them as they are; `test_google_texts.py` fails when one of them
changes. Sentences that Podyard wrote itself (descriptions in discovery documents, reasons in its
own words) are left out: they may be rewritten. `python -m tests.unit.tpu.google_texts --record`
writes the file again. Google's words change only when Google's do: cite the page of the reference,
or the recording, that says so in the commit.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from google.protobuf import descriptor_pb2, json_format

from podyard.api.compute.schema import methods as compute_methods
from podyard.api.compute.schema import vocabulary
from podyard.api.tpu import descriptors, discovery
from podyard.api.tpu.schema import PROTO_VERSIONS, VERSIONS, enums, messages, methods_of
from podyard.api.wire.vocabulary import Field
from podyard.base import error_details, errors, ids
from podyard.base.errors import Code, PodyardError
from podyard.control.access import identity
from podyard.control.platform import rate_quota
from podyard.domain import fleet as fleets
from podyard.domain.fleet_file import load_fleet
from podyard.domain.host import NodeFacts, worker_environment
from podyard.domain.node import UsageClass
from podyard.domain.principal import Principal
from podyard.hardware import accelerator_types, runtime_versions
from podyard.scheduler import cycle
from podyard.workers.host.metadata import MetadataHandler, MetadataSource
from tests.yard import ZONE, Yard, open_yard

FILE = Path(__file__).parents[2] / "data" / "google_texts.json"
COMMAND = "python -m tests.unit.tpu.google_texts --record"
_FLEET = f"""
zones: {{{ZONE}: {{v2: {{shape: 4x4}}, v3: {{shape: 4x4}}}}}}
timings: {{create_seconds: 0, delete_seconds: 0}}
quotas: {{default: 40}}
"""
# What differs from one run to the next.
_RANDOM = (
    (re.compile(r"(operation|node|queue|reservation)-[0-9a-f]{24}"), r"\1-ID"),
    (re.compile(r"0x[0-9a-f]{16}"), "0xEID"),
    (re.compile(r'"id": "\d+"'), '"id": "NUMBER"'),
    (re.compile(r"\b\d{12}\b"), "PROJECT-NUMBER"),
    (re.compile(r"AAAAC3NzaC1lZDI1NTE5[A-Za-z0-9+/=]+"), "SSH-KEY"),
)
_CREDENTIALS = identity.INVALID_CREDENTIALS.partition(":")[0]
PARENT = f"projects/demo/locations/{ZONE}"


def collect() -> dict[str, Any]:
    """Everything that is frozen, as JSON."""
    return {
        "codes": {code.name: [int(code), code.http_status] for code in Code},
        "enums": {
            version: {name: dict(values) for name, values in enums(version).items()}
            for version in VERSIONS
        },
        "messages": {version: _messages(version) for version in VERSIONS},
        "methods": {version: _methods(version) for version in VERSIONS},
        "discovery": {version: _discovery(version) for version in VERSIONS},
        "descriptors": {version: _descriptor(version) for version in PROTO_VERSIONS},
        "texts": _texts(),
        "types": {
            kind.name: [kind.topology.text, kind.host_count]
            for kind in accelerator_types.all_types()
        },
        "metadata": asyncio.run(_metadata()),
        "compute": _compute(),
        "answers": _answers(),
    }


def read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Each leaf that is not the same, by its path."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            where = f"{path}/{name}"
            if name not in new:
                yield f"{where}: {old[name]!r} is gone"
            elif name not in old:
                yield f"{where}: {new[name]!r} is new"
            else:
                yield from differences(old[name], new[name], where)
    elif old != new:
        yield f"{path}: {old!r} became {new!r}"


def _hash(value: Any) -> str:
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()


def _messages(version: str) -> dict[str, dict[str, str]]:
    return {
        name: {field.name: _field(field) for field in message.fields.values()}
        for name, message in messages(version).items()
    }


def _field(field: Field) -> str:
    flags = [
        name for name in ("output_only", "left_aside", "hidden", "optional") if getattr(field, name)
    ]
    one_of = [f"one of {field.one_of}"] if field.one_of else []
    kind = f"{field.type}{'[]' if field.repeated else ''}"
    return " ".join([kind, "-" if field.number is None else str(field.number), *flags, *one_of])


def _methods(version: str) -> dict[str, str]:
    return {
        method.id: " ".join(
            (method.rpc, method.verb, method.path, method.body, method.response, method.permission)
        )
        for method in methods_of(version)
    }


def without_sentences(value: Any, names: bool = False) -> Any:
    """A discovery document without descriptions, which are Podyard's. `names`: the keys are names
    of fields, methods
    or parameters, and `description` is one of them."""
    if isinstance(value, list):
        return [without_sentences(item) for item in value]
    if not isinstance(value, dict):
        return value
    holders = ("properties", "schemas", "parameters", "methods", "resources", "scopes")
    return {
        name: without_sentences(item, name in holders and not names)
        for name, item in value.items()
        if names or name not in ("description", "enumDescriptions")
    }


def _discovery(version: str) -> dict[str, Any]:
    plain = without_sentences(discovery.document(version, "https://tpu.googleapis.com/"))
    schemas, resources = plain.pop("schemas"), plain.pop("resources")
    return {**plain, "schemas": _hash(schemas), "resources": _hash(resources)}


def _descriptor(version: str) -> str:
    found = descriptor_pb2.FileDescriptorProto()
    descriptors.pool().FindFileByName(f"podyard/google/cloud/tpu/{version}.proto").CopyToProto(
        found
    )
    return _hash(json_format.MessageToDict(found))


def _said(body: Callable[[], object]) -> dict[str, Any]:
    """The error that `body` raises, as Google's envelope has it."""
    try:
        body()
    except PodyardError as error:
        return {"code": error.code.name, "message": error.message}
    raise AssertionError("no error was raised")


def _texts() -> dict[str, Any]:
    """Google's sentences, each from the function that makes it. Error ids are made from the words
    and stay."""
    offers = load_fleet(_FLEET)
    v3, v5e = accelerator_types.parse("v3-32"), accelerator_types.parse("v5litepod-16")
    some = ("v2-8", "v2-32", "v3-8", "v4-8", "v5litepod-4", "v5p-8", "v6e-4")
    return {
        "stockout": cycle.stockout_message("europe-west4-a", "key"),
        "reservation": cycle.reservation_message("key"),
        "quota": fleets.quota_message("us-central1-a", v3, UsageClass.ON_DEMAND, 32),
        "quota of v5e, spot": fleets.quota_message("us-central1-a", v5e, UsageClass.SPOT, 0),
        "quota names": {
            f"{name} {usage}": fleets.quota_name(accelerator_types.parse(name), usage)
            for name in some
            for usage in UsageClass
        },
        "bad request": _plain(
            ids.bad_request("update is not supported while in state PREEMPTED", "key")
        ),
        "accelerator type": _said(lambda: offers.type_named(ZONE, "v3-9"))["message"],
        "TensorFlow version": _said(lambda: runtime_versions.check_tensorflow("9.9"))["message"],
        "not found": _plain(errors.not_found("projects/p/locations/l/nodes/n")),
        # what follows is Podyard's
        "credentials": identity.INVALID_CREDENTIALS[: len(_CREDENTIALS)],
        "permission": _said(
            lambda: Principal("e", {}).require("tpu.nodes.list", "p", "projects/p")
        )["message"],
        "API key": _plain(identity.api_key_not_valid()),
        "error info": error_details.to_json(identity.error_info("ACCESS_TOKEN_EXPIRED")),
        "metrics": {
            name: rate_quota.metric_of(name) for name in ("nodes.create", "nodes.list", "default")
        },
    }


def _plain(error: PodyardError) -> dict[str, Any]:
    return {
        "code": error.code.name,
        "message": error.message,
        "details": [error_details.to_json(detail) for detail in error.details],
    }


async def _metadata() -> dict[str, Any]:
    """A host's metadata server: its tree, refusals, and the environment of programs."""
    facts = NodeFacts(
        node_key="n", project="demo", project_number=12, zone="us-central2-b", node_id="pod",
        number=42, state="READY",
        accelerator_type="v4-16", topology="2x2x2", runtime_version="tpu-vm-v4-base",
        usage_class="spot",
        description="", tags=("a",), metadata={"k": "v"}, service_account="a@b", scopes=("s",),
        network="default",
        internal_ips=("10.128.0.2", "10.128.0.3"), external_ips=(),
    )  # fmt: skip

    async def token() -> tuple[str, int]:
        return "T", 3599

    handler = MetadataHandler(MetadataSource(facts, 1, 4242, {}, token))
    asked = (
        "/", "/computeMetadata/v1/?recursive=true", "/computeMetadata/v1/instance/",
        "/computeMetadata/v1/instance/service-accounts/default/token",
        "/computeMetadata/v1/instance/attributes/tpu-env", "/computeMetadata/v1/instance/nothing",
    )  # fmt: skip
    found: dict[str, Any] = {}
    for target in asked:
        answer = await handler.answer("GET", target, {"metadata-flavor": "Google"}, b"")
        found[target] = f"{answer.status} {answer.body}"
    refused = await handler.answer("GET", asked[2], {}, b"")
    return {
        **found,
        "without its header": f"{refused.status} {refused.body}",
        "environment": sorted(
            name for name in worker_environment(facts, 1) if not name.startswith("PODYARD_")
        ),
    }


def _compute() -> dict[str, Any]:
    """Compute Engine's messages and methods."""
    words = vocabulary()
    return {
        "enums": {name: list(values) for name, values in words.enums.items()},
        "messages": {
            name: {field.name: _compute_field(field) for field in message.fields.values()}
            for name, message in words.messages.items()
        },
        "methods": {
            method.id: " ".join(
                (method.verb, method.path, method.body, method.answer, method.permission)
            )
            for method in compute_methods()
        },
    }


def _compute_field(field: Field) -> str:
    shape = f"map of {field.type}" if field.mapped else field.type
    return f"{shape}{'[]' if field.repeated else ''}{' output_only' if field.output_only else ''}"


def _answers() -> dict[str, Any]:
    """Return what the real application answers to clients of each version."""
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        open_yard(Path(folder), load_fleet(_FLEET)) as yard,
    ):
        for version in VERSIONS:
            _life(yard, version, found)
        _refusals(yard, found)
    text = json.dumps(without_own_words(found), sort_keys=True, ensure_ascii=False)
    for pattern, instead in _RANDOM:
        text = pattern.sub(instead, text)
    cleaned: dict[str, Any] = json.loads(text)
    return cleaned


def _keep(found: dict[str, Any], name: str, response: httpx.Response) -> Any:
    found[name] = [response.status_code, response.json()]
    return response.json()


def _life(yard: Yard, version: str, found: dict[str, Any]) -> None:
    """A node of this version, and what else it lists."""
    nodes = f"/{version}/{PARENT}/nodes"
    software = (
        {"tensorflowVersion": "2.12.0"}
        if version.startswith("v1")
        else {"runtimeVersion": "tpu-vm-base"}
    )
    body = {
        "acceleratorType": "v2-8",
        "schedulingConfig": {"preemptible": True},
        "labels": {"a": "b"},
        **software,
    }

    def keep(name: str, method: str, path: str, sent: Any = None) -> Any:
        return _keep(found, f"{version} {name}", yard.call(method, path, sent))

    operation = keep("nodes.create", "POST", f"{nodes}?nodeId=n", body)
    yard.step()
    keep("operations.get", "GET", f"/{version}/{operation['name']}")
    keep("nodes.get", "GET", f"{nodes}/n")
    if version.startswith("v2"):
        keep("nodes.patch", "PATCH", f"{nodes}/n?updateMask=labels", {"labels": {}})
        keep("getGuestAttributes", "POST", f"{nodes}/n:getGuestAttributes", {})
        keep("generateServiceIdentity", "POST", f"/{version}/{PARENT}:generateServiceIdentity", {})
        _queue(yard, version, keep)
    deleted = keep("nodes.delete", "DELETE", f"{nodes}/n")
    yard.step()
    keep("operations.get of a deletion", "GET", f"/{version}/{deleted['name']}")
    keep("locations.list", "GET", f"/{version}/projects/demo/locations")
    keep("acceleratorTypes.get", "GET", f"/{version}/{PARENT}/acceleratorTypes/v3-32")


def _queue(yard: Yard, version: str, keep: Callable[..., Any]) -> None:
    queues = f"/{version}/{PARENT}/queuedResources"
    node = {"acceleratorType": "v2-8", "runtimeVersion": "tpu-vm-base"}
    spec = {"tpu": {"nodeSpec": [{"parent": PARENT, "nodeId": "q-n", "node": node}]}, "spot": {}}
    keep("queuedResources.create", "POST", f"{queues}?queuedResourceId=q", spec)
    yard.step()
    keep("queuedResources.get", "GET", f"{queues}/q")
    yard.ok("POST", f"/podyard/v1/{PARENT}/nodes/q-n:preempt", {})
    yard.step()
    keep("nodes.get of a preempted one", "GET", f"/{version}/{PARENT}/nodes/q-n")
    keep("queuedResources.get of a preempted one", "GET", f"{queues}/q")
    keep(
        "nodes.patch while PREEMPTED",
        "PATCH",
        f"/{version}/{PARENT}/nodes/q-n?updateMask=labels",
        {"labels": {}},
    )
    keep("queuedResources.delete", "DELETE", f"{queues}/q?force=true")
    yard.step()
    yard.step()
    keep("queuedResources.get of what is gone", "GET", f"{queues}/q")


def _refusals(yard: Yard, found: dict[str, Any]) -> None:
    """Errors in Google's words. Those in Podyard's own are not here."""
    nodes = f"/v2/{PARENT}/nodes"
    whole = {"acceleratorType": "v3-32", "runtimeVersion": "tpu-vm-base"}
    small = {**whole, "acceleratorType": "v2-8"}

    def keep(name: str, method: str, path: str, sent: Any = None, **options: Any) -> Any:
        return _keep(found, name, yard.call(method, path, sent, **options))

    yard.ok("POST", f"{nodes}?nodeId=whole", whole)
    yard.step()
    keep("quota", "POST", f"{nodes}?nodeId=more", whole)
    keep("already exists", "POST", f"{nodes}?nodeId=whole", whole)
    keep("start while READY", "POST", f"{nodes}/whole:start", {})
    for index in range(4):
        yard.ok("POST", f"{nodes}?nodeId=s-{index}", small)
    yard.step()
    late = yard.ok("POST", f"{nodes}?nodeId=s-4", small)
    yard.step()
    keep("stockout", "GET", f"/v2/{late['name']}")
    keep("not found", "GET", f"{nodes}/nothing")
    keep("unknown type", "POST", f"{nodes}?nodeId=x", {**small, "acceleratorType": "v2-9"})
    keep(
        "type that is not offered",
        "POST",
        f"{nodes}?nodeId=x",
        {**small, "acceleratorType": "v4-8"},
    )
    keep("unknown field", "POST", f"{nodes}?nodeId=x", {**small, "nme": 1})
    keep("wrong value", "POST", f"{nodes}?nodeId=x", {**small, "acceleratorConfig": {"type": "V9"}})
    keep("unknown path", "GET", "/v2/nothing")
    keep("another project", "GET", f"/v2/projects/other/locations/{ZONE}/nodes")
    keep("no such token", "GET", nodes, headers={"Authorization": "Bearer nothing"})
    _keep(found, "API key", httpx.get(f"{yard.url}{nodes}?key=pdykey_nothing", verify=False))
    _keep(found, "billing catalogue", yard.call("GET", "/v1/services"))


def without_own_words(value: Any) -> Any:
    """An answer without what Podyard says in its own words: details of its own domain, what a
    field's violation says besides the message, and the hint behind Google's sentence about
    credentials."""
    if isinstance(value, list):
        return [without_own_words(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {name: without_own_words(item) for name, item in value.items()}
    if found.get("domain") == "podyard":
        found["metadata"] = sorted(found.get("metadata", {}))
    message = found.get("message", "")
    if str(message).startswith(_CREDENTIALS):
        found["message"] = _CREDENTIALS
    for detail in found.get("details", ()):
        for violation in detail.get("fieldViolations", ()):
            if violation["description"] != message:
                violation["description"] = "(Podyard's)"
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.unit.tpu.google_texts", description=__doc__
    )
    parser.add_argument(
        "--record", action="store_true", required=True, help="Write the file again."
    )
    parser.parse_args(arguments)
    new = json.loads(json.dumps(collect()))
    for line in differences(read(), new) if FILE.exists() else ():
        print(line)
    FILE.write_text(
        json.dumps(new, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print(
        "For each change, cite in the commit the page of the reference that shows that Google's "
        "words have changed."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
