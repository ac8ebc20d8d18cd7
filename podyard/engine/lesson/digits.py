"""bfloat16 next to float32: the bits and digits of one number, and of a product of two matrices."""

from __future__ import annotations

import math

import numpy as np

from podyard.base.errors import invalid
from podyard.engine.lesson.picture import Picture, figure, rect, svg, table, text
from podyard.engine.numerics.bf16 import Float32Array, from_bits, round_to_bf16, to_bits

_CELL, _LEFT = 22, 8
_EXPONENT_BITS = 8
_LINE_WIDTH, _LINE_HEIGHT = 368, 96


def digits(value: float = 0.1) -> Picture:
    """The bits of `value` in both formats, what is lost, and its neighbours. Raises
    INVALID_ARGUMENT unless finite."""
    if not math.isfinite(value):
        raise invalid(f"the number must be finite, got {value}", "value")
    with np.errstate(over="ignore", under="ignore"):
        single = np.array([value], np.float32)
    (short,) = round_to_bf16(single)
    (bits,) = single.view(np.uint32).tolist()
    (short_bits,) = to_bits(single).tolist()
    caption = "A bfloat16 is the upper half of a float32, rounded"
    drawing = figure(caption, _bits_picture(int(bits), int(short_bits), value))
    line = figure("The bfloat16 numbers next to it", _number_line(float(single[0]), float(short)))
    body = (
        f'<div class="lesson-pair">{drawing}{line}</div>'
        f"{_numbers_table(value, float(single[0]), float(short))}"
    )
    note = (
        "A matrix unit multiplies bfloat16 numbers and adds in float32. bfloat16 has the range of "
        "float32 and a third "
        "of its digits, so that a gradient seldom overflows and a cell of the array stays small."
    )
    return Picture(
        f"{value:g} in bfloat16 and float32",
        f'<div class="lesson">{body}<p class="lesson-note">{note}</p></div>',
    )


def products(x: Float32Array, w: Float32Array) -> Picture:
    """x w with operands as they are, and rounded to bfloat16 as a matrix unit takes them; sums in
    float32 both times. The digits from which on the two differ are marked."""
    exact, rounded = x @ w, round_to_bf16(x) @ round_to_bf16(w)
    rows = "".join(
        "<tr>"
        + "".join(_cell(float(a), float(b)) for a, b in zip(line, other, strict=True))
        + "</tr>"
        for line, other in zip(exact, rounded, strict=True)
    )
    worst = float(np.max(np.abs(rounded - exact) / np.abs(exact)))
    before = f"{float(x[0, 0]):.9g} is read as {float(round_to_bf16(x)[0, 0]):.9g}"
    name = "y = x w: float32 operands above, bfloat16 operands below"
    body = (
        f'<div class="lesson-table" tabindex="0" role="region" aria-label="{name}"><table '
        'class="lesson-digits">'
        f"<caption>{name}</caption><tbody>{rows}</tbody></table></div>"
        f'<p class="lesson-note">x[0,0] = {before}. The marked digits differ: by at most '
        f"{worst:.2%} of the element "
        "here. Sums are float32 in both, as in the hardware.</p>"
    )
    return Picture("A product in bfloat16 and in float32", f'<div class="lesson">{body}</div>')


def _cell(exact: float, rounded: float) -> str:
    above, below = f"{exact:.5f}", f"{rounded:.5f}"
    same = next(
        (at for at, (a, b) in enumerate(zip(above, below, strict=False)) if a != b), len(above)
    )
    return f"<td><span>{above}</span><span>{below[:same]}<mark>{below[same:]}</mark></span></td>"


def _bits_picture(bits: int, short_bits: int, value: float) -> str:
    """Two rows of 16 bits for the float32, and the bfloat16 below."""
    upper, lower = f"{bits:032b}"[:16], f"{bits:032b}"[16:]
    short = f"{short_bits:016b}"
    parts = [text(_LEFT, 16, "float32, upper half", "label"), *_bit_row(26, upper, "kept")]
    parts += [
        text(_LEFT, 76, "float32, lower half: rounded away", "label"),
        *_bit_row(86, lower, "lost"),
    ]
    carried = short != upper
    name = "bfloat16: the upper half" + (", rounded up" if carried else "")
    parts += [text(_LEFT, 146, name, "label"), *_bit_row(156, short, "kept", upper)]
    legend = (
        ("sign", "sign", 0),
        ("exp", "exponent, 8 bits", 62),
        ("frac", "fraction, 23 or 7", 212),
    )
    for kind, words, x in legend:
        parts += [
            rect(_LEFT + x, 204, 13, 13, f"bit {kind}", 3),
            text(_LEFT + x + 18, 215, words, "small"),
        ]
    told = f"{value:g}: float32 {upper} {lower}, bfloat16 {short}"
    return svg("The bits", told, 16 * _CELL + 2 * _LEFT, 226, parts)


def _bit_row(y: float, bits: str, half: str, before: str = "") -> list[str]:
    parts = []
    for index, bit in enumerate(bits):
        kind = (
            "lost"
            if half == "lost"
            else "sign"
            if not index
            else "exp"
            if index <= _EXPONENT_BITS
            else "frac"
        )
        changed = " changed" if before and before[index] != bit else ""
        x = _LEFT + index * _CELL
        parts.append(rect(x + 1, y, _CELL - 2, 28, f"bit {kind}{changed}", 4))
        parts.append(
            text(
                x + _CELL / 2,
                y + 19,
                bit,
                "bit-text lost" if half == "lost" else "bit-text",
                "middle",
            )
        )
    return parts


def _neighbours(short: float) -> tuple[float, float]:
    """The bfloat16 numbers below and above one."""
    (bits,) = to_bits(np.array([abs(short)], np.float32)).tolist()
    steps = np.array([max(bits - 1, 0), bits + 1], np.uint16)
    below, above = (float(found) for found in from_bits(steps))
    return (below, above) if short >= 0 else (-above, -below)


def _number_line(single: float, short: float) -> str:
    if not math.isfinite(short):
        parts = [text(_LEFT, 40, "The number is too large: it becomes infinity.", "label")]
        return svg("Number line", "infinity", _LINE_WIDTH, _LINE_HEIGHT, parts)
    below, above = _neighbours(short)
    low, high = 40.0, _LINE_WIDTH - 40.0
    ends = (below, above) if all(map(math.isfinite, (below, above))) else (short, short)

    def place(number: float) -> float:
        return low + (number - ends[0]) / ((ends[1] - ends[0]) or 1) * (high - low)

    parts = [f'<path class="axis-line" d="M{low - 20:g} 52H{high + 20:g}"/>']
    marks = [(below, "below"), (short, "nearest"), (above, "above")]
    for number, name in [one for one in marks if math.isfinite(one[0])]:
        at = place(number)
        parts.append(f'<path class="axis-line" d="M{at:.1f} 44v16"/>')
        parts.append(
            text(at, 78, f"{number:.7g}", "label" if name == "nearest" else "small", "middle")
        )
    at = place(single)
    parts.append(f'<path class="pointer" d="M{at:.1f} 48l-7 -14h14z"/>')
    parts.append(text(min(max(at, 60), _LINE_WIDTH - 60), 24, f"{single:.9g}", "label", "middle"))
    told = f"{single:.9g} lies between {below:.7g} and {above:.7g}; the nearest is {short:.7g}"
    return svg("Number line", told, _LINE_WIDTH, _LINE_HEIGHT, parts)


def _numbers_table(value: float, single: float, short: float) -> str:
    step = float(np.spacing(np.float32(abs(single)))) if math.isfinite(single) else math.inf
    return table(
        "The same number",
        ("Format", "Value", "Error", "Step to the next", "Digits", "Bits"),
        [
            ("as given", f"{value:.12g}", "", "", "", ""),
            (
                "float32",
                f"{single:.12g}",
                _error(value, single),
                f"{step:.3g}",
                "about 7",
                "1 + 8 + 23",
            ),
            (
                "bfloat16",
                f"{short:.12g}",
                _error(value, short),
                _step(short),
                "2 to 3",
                "1 + 8 + 7",
            ),
        ],
    )


def _error(value: float, stored: float) -> str:
    if not math.isfinite(stored):
        return "overflow"
    return "none" if value == stored else f"{abs(stored - value) / abs(value):.2g} of it"


def _step(short: float) -> str:
    if not math.isfinite(short):
        return "none"
    return f"{_neighbours(abs(short))[1] - abs(short):.3g}"
