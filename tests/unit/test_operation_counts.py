"""Counts of operations in a file, which outlives a process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from podyard.api.storage.operations import json_operation, xml_operation
from podyard.base.operation_counts import OperationCounts, read_counts
from podyard.domain.stored import OperationClass

A, B = OperationClass.A, OperationClass.B


def _counts(path: Path) -> list[tuple[str, str, int]]:
    return [(one.bucket, one.of_class, one.number) for one in read_counts(path)]


def test_a_kill_loses_no_count(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from podyard.base.operation_counts import OperationCounts
counts = OperationCounts(Path({str(tmp_path)!r}))
for _ in range(1000):
    counts.count("b-1", "class-a")
    counts.count("b.2", "class-b")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert (
        subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    )
    counts = OperationCounts(tmp_path)
    counts.count("b-1", "class-a")
    files = counts.close()
    assert sorted(_counts(path) for path in files) == [
        [("b-1", "class-a", 1)],
        [("b-1", "class-a", 1000), ("b.2", "class-b", 1000)],
    ]
    ids = {one.count_id for path in files for one in read_counts(path)}
    assert len(ids) == 3
    os.truncate(files[0], files[0].stat().st_size - 1)  # as a full disk leaves a line
    assert len(_counts(files[0])) < 3


def test_requests_are_charged_as_google_says() -> None:
    b, o = ("storage", "v1", "b", "b-1"), ("storage", "v1", "b", "b-1", "o")
    upload = ("upload", *o)
    for method, parts, wanted in (
        ("GET", b, B),
        ("PATCH", b, A),
        ("DELETE", b, None),
        ("GET", o, A),
        ("GET", (*o, "x"), B),
        ("GET", (*o, "a", "b"), B),
        ("PATCH", (*o, "x"), A),
        ("DELETE", (*o, "x"), None),
        ("POST", (*o, "x", "compose"), A),
        ("GET", (*b, "iam"), B),
        ("POST", upload, A),
        ("POST", ("resumable", *upload), A),
        ("GET", ("download", *o, "x"), B),
    ):
        assert json_operation(method, parts, {}) == (None if wanted is None else ("b-1", wanted)), (
            method,
            parts,
        )
    assert json_operation("PUT", upload, {"upload_id": "u"}) is None
    assert json_operation("POST", (*o, "x", "rewriteTo", "b", "b-2", "o", "y"), {}) == ("b-2", A)
    assert json_operation("GET", ("storage", "v1", "b"), {}) is None
    assert json_operation("POST", ("batch", "storage", "v1"), {}) is None
    for method, path, query, wanted in (
        ("GET", ("b-1",), {}, A),
        ("GET", ("b-1", ""), {}, A),
        ("HEAD", ("b-1",), {}, B),
        ("PUT", ("b-1",), {}, None),
        ("GET", ("b-1", "x"), {}, B),
        ("PUT", ("b-1", "x"), {}, A),
        ("DELETE", ("b-1", "x"), {}, None),
        ("PUT", ("b-1", "x"), {"upload_id": "u"}, None),
        ("PUT", ("b-1", "x"), {"uploadId": "u", "partNumber": "1"}, A),
        ("GET", ("",), {}, None),
    ):
        assert xml_operation(method, path, query) == (
            None if wanted is None else ("b-1", wanted)
        ), (method, path)
