"""Lines that wait for the server: in order, in chunks that fit, and who writes too much waits."""

from __future__ import annotations

import json
import threading

from podyard.base.clock import RealTime
from podyard.domain.log import LINE_CHARACTERS_MAX
from podyard.http.guard import BODY_BYTES_MAX
from podyard.workers.kit import line_buffer
from podyard.workers.kit.line_buffer import LineBuffer

NOW = RealTime(10**18)


def _buffer(may_wait: bool = False) -> LineBuffer:
    return LineBuffer(lambda: may_wait, lambda: None)


def _texts(buffer: LineBuffer) -> list[str]:
    found: list[str] = []
    while (chunk := buffer.chunk()) is not None:
        assert len(json.dumps(chunk)) < BODY_BYTES_MAX * 3 // 4
        lines = chunk["text"].split("\n")[:-1]
        assert (chunk["seq"], chunk["lines"]) == (len(found), len(lines))
        found += [line.partition(" ")[2] for line in lines]
        buffer.on_taken(len(found))
    return found


def test_lines_come_in_chunks_that_a_request_holds() -> None:
    buffer = _buffer()
    lines = [f"{number} {'x' * 90}" for number in range(20_000)] + [
        "\u0007" * 4000,
        "\U0001f600" * 4000,
    ] * 30
    for line in lines:
        buffer.add(NOW, "stdout", line)
    assert _texts(buffer) == lines
    assert not buffer


def test_a_long_line_and_one_with_newlines_are_several() -> None:
    buffer = _buffer()
    buffer.add(NOW, "stderr", "a\n\nb")
    buffer.add(NOW, "stdout", "y" * (LINE_CHARACTERS_MAX + 1))
    assert _texts(buffer) == ["a", "", "b", "y" * LINE_CHARACTERS_MAX, "y"]


def test_a_chunk_that_was_not_taken_comes_again_with_what_is_new() -> None:
    buffer = _buffer()
    buffer.add(NOW, "stdout", "a")
    buffer.add(NOW.plus_seconds(0.25), "platform", "b")
    first = buffer.chunk()
    assert first == {
        "seq": 0,
        "lines": 2,
        "at": NOW.rfc3339(),
        "millis": 250,
        "text": "o0 a\np250 b\n",
    }
    buffer.on_taken(0)
    assert buffer.chunk() == first
    buffer.on_taken(1)
    rest = buffer.chunk()
    assert rest is not None and (rest["seq"], rest["text"]) == (1, "p0 b\n")


def test_who_writes_more_than_is_taken_waits_until_there_is_room() -> None:
    buffer = _buffer(may_wait=True)
    line, written = "z" * 1000, []

    def write() -> None:
        for number in range(2 * line_buffer.WAITING_MAX // len(line)):
            buffer.add(NOW, "stdout", line)
            written.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    taken = 0
    while taken < 2 * line_buffer.WAITING_MAX // len(line):
        chunk = buffer.chunk()
        assert (len(written) - taken) * len(line) < 2 * line_buffer.WAITING_MAX
        if chunk is not None:
            taken += chunk["lines"]
            buffer.on_taken(taken)
    writer.join()
    assert buffer.chunk() is None


def test_lines_are_kept_while_nobody_can_wait() -> None:
    buffer = _buffer(may_wait=False)
    for _ in range(line_buffer.WAITING_MAX // 500):
        buffer.add(NOW, "stdout", "q" * 1000)
    assert len(_texts(buffer)) == line_buffer.WAITING_MAX // 500
