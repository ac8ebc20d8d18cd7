"""A job's timeline: waiting, attempts, preemptions, resizes and checkpoints over platform time."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from podyard.base.clock import PlatformTime
from podyard.base.durations import duration_for_people
from podyard.domain.attempt import Attempt, AttemptOutcome
from podyard.domain.job import Job
from podyard.domain.job_history import CheckpointRecord
from podyard.web.kit.charts import svg

WIDTH, HEIGHT = 1100, 64
TOP, BAR = 22, 18
# the end of the axis of a job that runs: it moves seldom, so that its stream stays small
GROWTH = 2.0
SECONDS_LEAST = 10.0
BAR_LEAST = 2.0  # an attempt of a moment can be seen, too
CHECKPOINTS_MAX = 100  # the newest
TEXT_LEAST = 70.0  # width of a bar that has room for its name
_KIND = {
    AttemptOutcome.SUCCEEDED: "good",
    AttemptOutcome.FAILED: "bad",
    AttemptOutcome.PREEMPTED: "bad",
    AttemptOutcome.TIMED_OUT: "bad",
    AttemptOutcome.RESIZED: "resized",
}

_SIGNS = {"bad": "✕", "resized": "↕"}
_SIGN_TEXTS = (("bad", "failed, preempted or timed out"), ("resized", "resized"))


def timeline(
    job: Job,
    attempts: Sequence[Attempt],
    checkpoints: Sequence[CheckpointRecord],
    now: PlatformTime,
) -> Markup:
    """`checkpoints`: the newest first."""
    elapsed = (job.ended or now).seconds_since(job.created)
    span = max(elapsed, SECONDS_LEAST) if job.ended else _axis_end(elapsed)

    def across(moment: PlatformTime) -> float:
        return min(1.0, max(0.0, moment.seconds_since(job.created) / span)) * WIDTH

    body = [f'<rect class="track" x="0" y="{TOP}" width="{WIDTH}" height="{BAR}" rx="4"/>']
    for attempt in attempts:
        left, right = across(attempt.started), across(attempt.ended or now)
        body.append(_bar(attempt, left, max(BAR_LEAST, right - left)))
    for saved in checkpoints[:CHECKPOINTS_MAX]:
        x = f"{across(saved.at):.1f}"
        text = escape(f"Checkpoint at step {saved.step:,}")
        body.append(
            f'<path class="saved" d="M{x} {TOP + BAR + 2}l4 7h-8z"><title>{text}</title></path>'
        )
    body.append(f'<text class="axis" x="0" y="{HEIGHT - 2}">submitted</text>')
    end = f"{duration_for_people(elapsed if job.ended else span)} later"
    body.append(f'<text class="axis" x="{WIDTH}" y="{HEIGHT - 2}" text-anchor="end">{end}</text>')
    # Lines of text, so that only the bar that grows is sent again.
    return svg(
        "Timeline of the job",
        _describe(attempts),
        WIDTH,
        HEIGHT,
        ["", *(f"\n{line}" for line in body), "\n"],
        "timeline",
    )


def signs(
    attempts: Sequence[Attempt], checkpoints: Sequence[CheckpointRecord]
) -> list[tuple[str, str]]:
    """(sign, what it says) of those that the timeline has."""
    kinds = {_KIND.get(one.outcome) for one in attempts if one.outcome}
    found = [(_SIGNS[kind], text) for kind, text in _SIGN_TEXTS if kind in kinds]
    return [("▲", "checkpoint"), *found] if checkpoints else found


def _axis_end(elapsed: float) -> float:
    end = SECONDS_LEAST
    while end < elapsed:
        end *= GROWTH
    return end


def _bar(attempt: Attempt, left: float, width: float) -> str:
    kind = _KIND.get(attempt.outcome, "quiet") if attempt.outcome else "busy"
    text = (
        f"Attempt {attempt.attempt}, {attempt.outcome or attempt.state}, from step "
        f"{attempt.resume_step:,}"
    )
    reason = f": {attempt.reason}" if attempt.reason else ""
    bar = (
        f'<rect class="{kind}" x="{left:.1f}" y="{TOP}" width="{width:.1f}" height="{BAR}" rx="3">'
    )
    name = (
        f'<text x="{left + 6:.1f}" y="{TOP + 13}">attempt {attempt.attempt}</text>'
        if width >= TEXT_LEAST
        else ""
    )
    ended = _SIGNS.get(kind, "")
    sign = (
        f'<text class="sign {kind}" x="{left + width:.1f}" y="{TOP - 6}" '
        f'text-anchor="middle">{ended}</text>'
    )
    return f"{bar}\n<title>{escape(text + reason)}</title></rect>\n{name}{sign if ended else ''}"


def _describe(attempts: Sequence[Attempt]) -> str:
    tries = [
        f"attempt {one.attempt} {(one.outcome or one.state).lower().replace('_', ' ')}"
        for one in attempts
    ]
    return ", ".join(tries) or "no attempt yet"
