"""The eight steps of the lesson: where each begins, what to do there and what to see. A step takes at
most three clicks.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class LessonStep:
    """`path` is below the project; `task` says what to click, `answer` what it shows."""

    number: int
    title: str
    path: str
    task: str
    answer: str

    @property
    def address(self) -> str:
        """Below the project. The pages of the lesson know from it which step they are of."""
        return f"{self.path}{'&' if '?' in self.path else '?'}lesson={self.number}"


_TEXTS = (
    (
        "Step through a matrix unit",
        "mxu",
        "Click Forward and watch the weights come in from the top, then the activations from the left.",
        "No cell asks a memory for anything: each operand enters at an edge and is used by every cell on its way.",
    ),
    (
        "Compare two chips",
        "generations?a=v2&b=v3",
        "Choose another generation and click Compare.",
        "From v2 to v3 the arithmetic grows faster than the memory bandwidth: each byte must be used more often.",
    ),
)

STEPS: tuple[LessonStep, ...] = tuple(
    LessonStep(number, *texts) for number, texts in enumerate(_TEXTS, 1)
)  # fmt: skip


# The pages of the lesson: what follows the project in the address, and what it is called.
LESSON_PAGES: tuple[tuple[str, str], ...] = (
    ("lesson", "Lesson"),
    ("mxu", "Matrix unit"),
    ("generations", "Generations"),
    ("all-reduce", "All-reduce"),
)


def step_of(text: str) -> LessonStep | None:
    """The step that an address names; None for everything else."""
    return next((step for step in STEPS if str(step.number) == text), None)
