"""The eight steps of the lesson: where each begins, what to do there and what to see. A step takes
at
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
        (
            "Click Forward and watch the weights come in from the top, then the activations "
            "from the left."
        ),
        (
            "No cell asks a memory for anything: each operand enters at an edge and is "
            "used by every "
            "cell on its way."
        ),
    ),
    (
        "See what bfloat16 keeps of a number",
        "digits?value=0.1",
        "Click another number, or type one. Then follow the link to decimals on the array.",
        (
            "bfloat16 keeps sign and exponent of a float32 and seven bits of its "
            "fraction: the range "
            "stays, digits go."
        ),
    ),
    (
        "Compare two chips",
        "generations?a=v2&b=v3",
        "Choose another generation and click Compare.",
        (
            "From v2 to v3 the arithmetic grows faster than the memory bandwidth: each "
            "byte must be "
            "used more often."
        ),
    ),
    (
        "Find out why 4 x 123 is not 420",
        "device?type=v2-8",
        "Click v3-8, and compare its four chips with the device as it was sold.",
        (
            "420 TFLOPS would be a clock of 801 MHz, and 123 TFLOPS a chip are 940 MHz. Why they "
            "differ is not published."
        ),
    ),
    (
        "Sum gradients on the four chips of a v2-8",
        "all-reduce?accelerator_type=v2-8",
        "Click Forward until every chip is green. Each step sends to neighbours only.",
        (
            "First each chip gets the sum of a part, then the parts are handed on. A chip "
            "sends twice "
            "3/4 of the array."
        ),
    ),
    (
        "Sum gradients on a torus of 64 chips",
        "all-reduce?accelerator_type=v4-128",
        "Click Forward, then choose another slice, for example v4-64, and compare the time.",
        (
            "Where links wrap round, sums come from both sides at once: half the steps, and twice "
            "the bandwidth."
        ),
    ),
    (
        "Give the first TPU more bandwidth",
        "tpu-v1?bandwidth=1",
        "Click × 4, and see which of six applications become faster.",
        (
            "Most of them wait for weights: 4 times the bandwidth makes them about 3 "
            "times as fast, "
            "and the peak stays."
        ),
    ),
    (
        "Create a TPU and find it on the pod",
        "nodes/new?accelerator_type=v2-8&zone=us-central1-f&node_id=lesson",
        "Click Create node, then Pods. Your slice is the coloured square of 2 x 2 chips.",
        "A slice is cut from a torus of hundreds of chips, and its links are yours alone.",
    ),
)

STEPS: tuple[LessonStep, ...] = tuple(
    LessonStep(number, *texts) for number, texts in enumerate(_TEXTS, 1)
)


# The pages of the lesson: what follows the project in the address, and what it is called.
LESSON_PAGES: tuple[tuple[str, str], ...] = (
    ("lesson", "Lesson"),
    ("mxu", "Matrix unit"),
    ("digits", "Number formats"),
    ("generations", "Generations"),
    ("device", "Device"),
    ("all-reduce", "All-reduce"),
    ("tpu-v1", "TPU v1, Edge TPU"),
)


def step_of(text: str) -> LessonStep | None:
    """The step that an address names; None for everything else."""
    return next((step for step in STEPS if str(step.number) == text), None)
