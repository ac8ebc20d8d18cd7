"""Modules that a program hands over as HLO: TensorFlow before 2.19 writes no StableHLO. Podyard's
own process has the converter (jaxlib), the program's environment has none."""

from __future__ import annotations

import json

from podyard.programs import tensorflow_modules
from podyard.programs.modules.hlo_bytes import without_traces

_HEAD = b"// podyard hlo: "


def record_of(hlo: bytes, name: str, replicas: int, split: int) -> bytes:
    """Return what is handed over instead of a module's text: `hlo` is a serialized HLO module of
    one replica; the other arguments are those of `tensorflow_modules.over_replicas`."""
    head = json.dumps({"name": name, "replicas": replicas, "split": split})
    return _HEAD + head.encode() + b"\n" + without_traces(hlo)


def text_of(record: bytes) -> bytes:
    """Return the text of a module, which may be a record of HLO.

    Raises PodyardError FAILED_PRECONDITION where no jaxlib is installed, INVALID_ARGUMENT for what
    is not such a record.
    """
    if not record.startswith(_HEAD):
        return record
    from podyard.base.errors import invalid
    from podyard.engine.program.serialized import text_of_hlo

    head, _, hlo = record.removeprefix(_HEAD).partition(b"\n")
    try:
        fields = json.loads(head)
        name, replicas, split = str(fields["name"]), int(fields["replicas"]), int(fields["split"])
        text = text_of_hlo(hlo)
        return tensorflow_modules.over_replicas(text, name, replicas, split).encode()
    except (ValueError, KeyError, TypeError) as error:
        raise invalid(f"the record of an HLO module cannot be read: {error}", "module") from error
