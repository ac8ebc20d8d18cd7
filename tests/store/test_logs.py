"""Lines of jobs: kept once in files, merged, searched, rotated, and what a failing worker wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from podyard.base.clock import ManualClock, RealTime
from podyard.base.contents import Contents
from podyard.base.errors import PodyardError
from podyard.base.event_files import scalar_record
from podyard.base.log_files import LogFiles
from podyard.control.checks import fsck
from podyard.control.jobs import curves, jobs, log_lines, log_reader
from podyard.control.jobs.log_reader import LineFilter
from podyard.control.storage import objects
from podyard.db.jobs import logs as job_logs
from podyard.db.store.unit_of_work import Database
from podyard.domain.job import Job, JobRequest
from podyard.domain.log import WrittenLines, line_text
from podyard.domain.principal import PLATFORM, Principal
from podyard.domain.replica import Replica
from podyard.domain.user_program import UserProgram, gs_parts
from podyard.http.objects import ObjectFiles
from podyard.pricing.current_card import default_rate_card
from tests.builders import PROJECT, ZONE, Play, node_spec, play_of_gang


@pytest.fixture
def play(database: Database, clock: ManualClock, tmp_path: Path) -> Play:
    return play_of_gang(database, clock, tmp_path)


def _job(play: Play) -> Job:
    return play.ask(jobs.get, "j")


def _say(
    play: Play,
    replica: Replica,
    first: int,
    texts: list[str],
    stream: str = "stdout",
    ago: float = 0,
) -> None:
    at = RealTime(play.clock.now().nanos).plus_seconds(-ago)
    text = "".join(line_text(stream, number, line) for number, line in enumerate(texts))
    play.say(replica, written=WrittenLines(first, len(texts), at, len(texts) - 1, text))


def _lines(play: Play, page: int = 100, **chosen: object) -> list[str]:
    """All of them, page by page."""
    found, place, more = [], "", True
    while more:
        answer = play.ask(jobs.logs, "j", play.files, LineFilter(**chosen), place, page)  # type: ignore[arg-type]
        found += [f"{line.attempt}.{line.rank} {line.line}" for line in answer.lines]
        place, more = answer.place, answer.more
        assert log_reader.is_place(place)
    return found


def test_lines_of_all_workers_are_merged_by_their_time(play: Play) -> None:
    first, second, *_ = play.live()
    play.turn(5)
    _say(play, first, 0, ["a", "b"], ago=3)
    _say(play, second, 0, ["c", "d"], ago=2)
    _say(play, first, 2, ["e"], ago=1)
    assert _lines(play) == ["1.0 a", "1.0 b", "1.1 c", "1.1 d", "1.0 e"] == _lines(play, page=2)
    assert _lines(play, worker=1) == ["1.1 c", "1.1 d"]
    assert _lines(play, attempt=2) == _lines(play, worker=9) == []


def test_lines_that_come_twice_are_kept_once_and_a_gap_is_asked_for_again(play: Play) -> None:
    replica = play.live()[0]
    _say(play, replica, 0, ["a", "b", "c"])
    _say(play, replica, 1, ["b", "c", "d"])
    _say(play, replica, 0, ["a"])
    _say(play, replica, 7, ["h"])
    assert _lines(play) == ["1.0 a", "1.0 b", "1.0 c", "1.0 d"]


def test_who_follows_misses_no_line_that_arrives_late(play: Play) -> None:
    first, second, *_ = play.live()
    play.turn(10)
    _say(play, first, 0, ["new"])
    page = play.ask(jobs.logs, "j", play.files, LineFilter(), "", 100)
    assert [line.line for line in page.lines] == ["new"] and not page.more
    _say(play, second, 0, ["late"], ago=8)
    _say(play, first, 1, ["newer"])
    page = play.ask(jobs.logs, "j", play.files, LineFilter(), page.place, 100)
    assert [line.line for line in page.lines] == ["late", "newer"]


def test_a_search_finds_text_in_any_case_and_one_stream(play: Play) -> None:
    replica = play.live()[0]
    _say(play, replica, 0, ["Loss 1", "other", "loss 2"])
    _say(play, replica, 3, ["LOSS of a peer"], stream="stderr")
    assert (
        _lines(play, search="loss")
        == ["1.0 Loss 1", "1.0 loss 2", "1.0 LOSS of a peer"]
        == _lines(play, 1, search="loss")
    )
    assert _lines(play, stream="stderr") == ["1.0 LOSS of a peer"]
    assert _lines(play, search="nowhere") == []


def test_a_search_through_much_takes_several_pages(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = play.live()[0]
    for number in range(20):
        _say(play, replica, number * 10, ["x" * 100] * 9 + [f"needle {number}"])
    monkeypatch.setattr(log_reader, "PAGE_BYTES_MAX", 3000)
    assert _lines(play, search="NEEDLE 1") == [
        f"1.0 needle {number}" for number in (1, *range(10, 20))
    ]
    assert len(_lines(play)) == 200


def test_the_oldest_lines_go_and_a_line_says_so(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "SEGMENT_BYTES", 1000)
    monkeypatch.setattr(log_lines, "SEGMENTS_MAX", 3)
    replica = play.live()[0]
    for number in range(40):
        _say(play, replica, number, [f"{number:03} {'x' * 196}"])
    lines = _lines(play)
    said, *kept = lines
    assert said.startswith("1.0 the first ") and "lines were removed: a worker's log keeps" in said
    numbers = [int(line.split()[1]) for line in kept]
    assert numbers == list(range(40 - len(numbers), 40)) and 8 <= len(numbers) <= 15
    assert f"first {40 - len(numbers)} lines" in said
    folder = play.files._root / _job(play).job_key / "1" / "0"
    assert len(list(folder.iterdir())) == 3
    count = play.database.read(lambda uow: job_logs.line_count(uow, _job(play).job_key, None))
    assert count == len(lines)


def test_the_last_lines_are_those_of_all_workers(play: Play) -> None:
    first, second, *_ = play.live()
    _say(play, first, 0, [f"a{number}" for number in range(50)], ago=2)
    _say(play, second, 0, [f"b{number}" for number in range(3)], ago=1)
    key = _job(play).job_key
    found = play.database.read(lambda uow: log_reader.tail(uow, play.files, key, LineFilter(), 5))
    assert [line.line for line in found] == ["a48", "a49", "b0", "b1", "b2"]


def test_the_traceback_of_the_worker_that_failed_comes_first(play: Play) -> None:
    replicas = play.live()
    trace = [
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "ValueError: no",
    ]
    _say(play, replicas[2], 0, ["warming up"])
    _say(play, replicas[2], 1, ["a warning", *trace], stream="stderr")
    _say(play, replicas[1], 0, ["lost a peer"], stream="stderr")
    play.say(replicas[2], "FAILED", error="ValueError: no")
    play.exit(play.live())
    play.turn()
    failure = play.ask(jobs.failure, "j", play.files)
    assert failure is not None
    assert (failure.attempt, failure.worker, failure.lines) == (1, 2, trace)
    assert _lines(play, stream="platform") == ["1.2 attempt 1 failed: ValueError: no"]


def test_a_full_disk_keeps_the_lines_with_the_replica(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = play.live()[0]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LogFiles, "write", full)
        _say(play, replica, 0, ["a"])
    assert _lines(play) == []
    _say(play, replica, 0, ["a"])
    assert _lines(play) == ["1.0 a"]


def test_who_may_not_see_the_job_sees_no_line(play: Play) -> None:
    stranger = Principal("stranger", {})
    with pytest.raises(PodyardError, match=r"podyard\.jobs\.get"):
        play.database.read(
            lambda uow: jobs.logs(
                uow, stranger, PROJECT, ZONE, "j", play.files, LineFilter(), "", 10
            )
        )


def test_what_a_program_prints_as_json_is_its_curve(
    database: Database, clock: ManualClock, tmp_path: Path
) -> None:
    """Across a restart: the new attempt's steps count from where it says that it is."""
    play = Play(database, clock)
    play.files = LogFiles(tmp_path)
    play.register()
    assert play.create("n").error_code is None
    play.run(jobs.create, "j", JobRequest(run=UserProgram(command="python train.py")), "n")
    play.turn()
    (replica,) = play.live()
    _measure(play, replica, [(10, {"loss": 2.0}), (20, {"loss": 1.0})])
    _measure(play, replica, [(20, {"accuracy": 0.5}), (30, {"loss": 0.7})])
    play.say(replica, "FAILED", error="no")
    play.exit(play.live())
    play.turn()
    play.turn(30)
    (again,) = play.live()
    _measure(play, again, [(25, {"loss": 0.8})])
    points = play.ask(jobs.metrics, "j", 0, 100)
    assert [(point.step, point.attempt, dict(point.metrics)) for point in points] == [
        (10, 1, {"loss": 2.0}), (20, 1, {"loss": 1.0, "accuracy": 0.5}), (25, 2, {"loss": 0.8})
    ]  # fmt: skip
    assert (_job(play).steps_done, _job(play).latest["loss"]) == (25, 0.8)
    assert list(database.read(lambda uow: fsck.check(uow, play.fleet, default_rate_card()))) == []


def _measure(play: Play, replica: Replica, said: list[tuple[int, dict[str, float]]]) -> None:
    points = [
        {"step": step, "metrics": metrics, "wall_seconds": 0.0, "modelled_seconds": 0.0}
        for step, metrics in said
    ]
    play.say(replica, points=points)


def test_event_files_of_a_programs_output_are_its_curves_and_artifacts(
    play: Play, tmp_path: Path
) -> None:
    play.run(
        jobs.create, "tf", JobRequest(run=UserProgram(command="python fit.py")), node_spec("v2-8")
    )
    play.turn()
    job = play.ask(jobs.get, "tf")
    assert job.spec.run is not None
    bucket, prefix = gs_parts(job.spec.run.output, "output")
    contents = Contents(tmp_path / "contents")
    other = scalar_record(1.0, 1, {"epoch_loss": 0.75})
    files = {
        f"{prefix}/logs/train/events.out.tfevents.1.host": scalar_record(
            1.0, 1, {"epoch_loss": 0.5}
        ),
        f"{prefix}/logs/validation/events.out.tfevents.1.host": other + b"cut off",
        f"{prefix}/logs/large/events.out.tfevents.1.host": bytes(curves.FILE_BYTES_MAX + 1),
        f"{prefix}/model/weights.bin": b"weights",
        f"{prefix}-other/events.out.tfevents.1.host": scalar_record(1.0, 1, {"of_another": 0.5}),
    }
    for name, data in files.items():
        incoming = contents.incoming(len(data))
        incoming.write(data)
        content = incoming.store()
        play.database.run(lambda uow, n=name, c=content: objects.put(uow, PLATFORM, bucket, n, c))
    drawn, left_out = play.database.read(
        lambda uow: curves.event_curves(uow, PLATFORM, job, contents)
    )
    assert drawn == {"logs/train/epoch_loss": {1: 0.5}, "logs/validation/epoch_loss": {1: 0.75}}
    assert left_out == 1
    stranger = Principal("stranger", {})
    assert play.database.read(lambda uow: curves.event_curves(uow, stranger, job, contents)) == (
        {},
        0,
    )
    made = play.ask(jobs.artifacts, "tf", ObjectFiles(tmp_path))
    parts = ("large", "train", "validation")
    assert sorted(made) == [f"events/logs/{part}/events.out.tfevents.1.host" for part in parts]
    name = "events/logs/train/events.out.tfevents.1.host"
    data = play.ask(jobs.artifact, "tf", ObjectFiles(tmp_path), contents, name)
    assert data == scalar_record(1.0, 1, {"epoch_loss": 0.5})
