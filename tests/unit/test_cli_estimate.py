"""`podyard estimate` from arguments to output, with the analysis replaced: what it is asked, what
becomes of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from podyard import engine
from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError, invalid
from podyard.cli.kit.commands import root
from podyard.cli.programs import estimate as command
from podyard.engine.recipes.programs import PROGRAMS
from podyard.engine.timing.estimate import Estimate
from podyard.pricing.cards import load_rate_card
from podyard.pricing.current_card import default_rate_card
from tests.unit.engine.test_report import estimate

NOW = PlatformTime.from_rfc3339("2026-11-21T00:00:00Z")
BATCH = 64


@dataclasses.dataclass
class Asked:
    """What the analysis was called with; `refused` types raise, `small` ones do not fit."""

    calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    small: tuple[str, ...] = ()
    host_loop: bool = False
    infeed: tuple[str, ...] = ()

    def answer(self, accelerator_type: str, global_batch: int | None) -> Estimate:
        if accelerator_type.startswith("v9"):
            raise invalid(
                f"accelerator type {accelerator_type!r} does not exist", "acceleratorType"
            )
        fits = accelerator_type not in self.small
        return dataclasses.replace(estimate(accelerator_type), global_batch=global_batch, fits=fits)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    seen = Asked()

    def analyze(
        step: Any,
        *args: Any,
        accelerator_type: str,
        global_batch: int | None,
        compiler: str,
        host_loop: bool,
        infeed: Sequence[str],
    ) -> Estimate:
        seen.calls.append(
            {"args": args, "type": accelerator_type, "batch": global_batch, "compiler": compiler}
        )
        seen.host_loop = host_loop
        seen.infeed = tuple(infeed)
        return seen.answer(accelerator_type, global_batch)

    def analyze_stablehlo(
        module: bytes, accelerator_type: str, compiler: str, host_loop: bool, infeed: Sequence[str]
    ) -> Estimate:
        seen.infeed = tuple(infeed)
        seen.host_loop = host_loop
        seen.calls.append({"module": module, "type": accelerator_type, "compiler": compiler})
        return seen.answer(accelerator_type, None)

    monkeypatch.setattr(engine, "analyze", analyze)
    monkeypatch.setattr(engine, "analyze_stablehlo", analyze_stablehlo)
    for name in ("PODYARD_LOCATION", "CLOUDSDK_COMPUTE_ZONE"):
        monkeypatch.delenv(name, raising=False)
    return seen


def run(*argv: str, given: str | bytes | None = None) -> tuple[int, str]:
    """Exit code and standard output; usage errors and expected failures are raised, as `podyard`
    itself sees them."""
    result = CliRunner().invoke(root, ["estimate", *argv], input=given, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stdout


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "step.mlir"
    path.write_text("module {}", encoding="utf-8")
    return str(path)


def test_a_file_is_the_program_of_one_device(asked: Asked, module: str) -> None:
    code, text = run(module, "--accelerator-type", "v3-32")
    assert code == 0
    assert text.startswith(
        "v3-32: 10.0 ms per step (devices 9.50 ms, then the host 500 us), "
        "60 % of it hbm; fits (3.0 of 15.5 GiB)\n\nFIGURE"
    )
    assert "step.mlir" in text
    assert "the program has no data set" in text
    assert asked.calls == [{"module": b"module {}", "type": "v3-32", "compiler": "podyard"}]
    assert not asked.host_loop
    run(module, "--host-loop")
    assert asked.host_loop
    assert asked.infeed == ()
    run(module, "--infeed", "0", "--infeed", "batch")
    assert asked.infeed == ("0", "batch")


def test_standard_input_is_a_file_too(asked: Asked) -> None:
    code, text = run("-", "--compiler", "xla-tpu", given="module @m {}")
    assert code == 0
    assert "standard input" in text
    assert asked.calls == [{"module": b"module @m {}", "type": "v3-8", "compiler": "xla-tpu"}]


def test_too_much_input_is_refused(
    asked: Asked, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "MAX_TEXT_BYTES", 8)
    for program, given in ((module, None), ("-", "module {}")):
        with pytest.raises(PodyardError, match="larger than the maximum of 8 bytes"):
            run(program, given=given)
    assert asked.calls == []


def test_bytes_that_are_no_program_are_refused() -> None:
    with pytest.raises(PodyardError, match="no program that JAX can read"):
        run("-", given=b"ML\xefR\x01\0")
    with pytest.raises(PodyardError, match="neither text in UTF-8 nor a serialized program"):
        run("-", given=b"ML\xefR\x01")


def test_what_is_not_there_is_named(asked: Asked, tmp_path: Path) -> None:
    with pytest.raises(
        PodyardError, match=r"neither a recipe \(digits-cnn, .*nor a file that can be read: No such"
    ):
        run("resnet-51")
    with pytest.raises(PodyardError, match="nor a file that can be read: Is a directory"):
        run(str(tmp_path))


def test_a_recipe_is_asked_for_a_step_of_the_whole_slice(asked: Asked) -> None:
    pytest.importorskip("jax")
    code, text = run(
        "mlp",
        "--accelerator-type",
        "v3-32",
        "--global-batch",
        str(BATCH),
        "--arg",
        "learningRate=0.5",
    )
    assert code == 0
    (call,) = asked.calls
    assert (call["type"], call["batch"]) == ("v3-32", BATCH)
    state, batch, key = call["args"]
    assert {leaf.shape[0] for leaf in batch.values()} == {BATCH}
    assert key.shape == (2,) and "params" in state
    assert "60000 examples" in text
    run("mlp")
    assert asked.calls[-1]["batch"] == PROGRAMS["mlp"].default_global_batch


def test_arguments_that_the_recipe_does_not_take_are_refused(asked: Asked) -> None:
    pytest.importorskip("jax")
    with pytest.raises(PodyardError, match="unknown argument 'depth'"):
        run("mlp", "--arg", "depth=3")
    with pytest.raises(PodyardError, match="learningRate is a number"):
        run("mlp", "--arg", "learningRate=fast")
    assert asked.calls == []


def test_without_jax_a_recipe_says_what_to_install(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PodyardError, match=r"podyard\[engine\]"):
        run("mlp")


@pytest.mark.parametrize("argv", [("--global-batch", "8"), ("--arg", "dtype=float32")])
def test_a_file_takes_no_arguments_of_a_recipe(
    asked: Asked, module: str, argv: tuple[str, ...]
) -> None:
    with pytest.raises(click.UsageError, match="can only be used with a recipe"):
        run(module, *argv)


def test_an_unknown_type_and_an_unknown_zone_fail(asked: Asked, module: str) -> None:
    with pytest.raises(PodyardError, match="'v9-1' does not exist"):
        run(module, "--accelerator-type", "v9-1")
    with pytest.raises(PodyardError, match="is not the name of a zone"):
        run(module, "--zone", "Mars")


# --- prices


def test_prices_are_the_cards_and_a_missing_one_says_so() -> None:
    card = default_rate_card()
    found = {price.usage: price for price in command.prices_of(card, "v3-32", "europe-west4", NOW)}
    assert list(found) == ["on-demand", "preemptible", "spot"]
    for usage, price in found.items():
        assert (
            price.nanos_per_hour
            == card.price("v3-32", "europe-west4", usage, NOW).total_nanos_per_hour
        )
        assert price.note == card.price("v3-32", "europe-west4", usage, NOW).source
    missing = command.prices_of(card, "v3-32", "us-central1", NOW)
    assert [price.nanos_per_hour for price in missing] == [None, None, None]
    assert "priced in europe-west4" in missing[0].note


def test_a_price_per_chip_counts_the_chips() -> None:
    card = load_rate_card("""
        sources: {a: a card}
        skus: {v4: {generation: v4, region: us-central2, usage: spot, unit: chip_hour,
                    prices: [{from: "2026-01-01T00:00:00Z", usd: "1.25", source: a, verified: false}]}}
        """)  # noqa: E501
    on_demand, _, spot = command.prices_of(card, "v4-32", "us-central2", NOW)
    assert on_demand.nanos_per_hour is None
    assert (spot.nanos_per_hour, spot.note, spot.verified) == (16 * 1_250_000_000, "a card", False)
    before = command.prices_of(
        card, "v4-32", "us-central2", PlatformTime.from_rfc3339("2025-12-31T00:00:00Z")
    )
    assert "the first is from 2026-01-01" in before[2].note


def test_an_error_of_the_card_is_not_a_missing_price() -> None:
    with pytest.raises(PodyardError, match="accelerator type 'v1-1' does not exist"):
        command.prices_of(default_rate_card(), "v1-1", "us-central1", NOW)


def test_the_zone_decides_the_price(
    asked: Asked, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        "no on-demand price of v3-32 in us-central1"
        in run(module, "--accelerator-type", "v3-32")[1]
    )
    monkeypatch.setenv("PODYARD_LOCATION", "europe-west4-a")
    text = run(module, "--accelerator-type", "v3-32")[1]
    assert "Cost in europe-west4-a:" in text
    assert "no on-demand price" not in text


# --- output


def test_json_is_one_object_or_a_list_when_compared(asked: Asked, module: str) -> None:
    found = json.loads(run(module, "-o", "json")[1])
    assert found["acceleratorType"] == "v3-8"
    assert found["zone"] == "us-central1-f"
    code, text = run(module, "-o", "json", "--compare", "v2-32,v9-1")
    rows = json.loads(text)
    assert code == 0
    assert [row["acceleratorType"] for row in rows] == ["v3-8", "v2-32", "v9-1"]
    assert rows[1]["ratios"]["modelledSeconds"] == 1
    assert rows[2]["error"]["status"] == "INVALID_ARGUMENT"


def test_a_comparison_prints_all_and_fails_with_the_main_one(asked: Asked, module: str) -> None:
    code, text = run(module, "--compare", "v9-1,v4-32,v3-8")
    assert code == 0
    rows = text[text.index("Compared, ") :].splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["v3-8", "v9-1", "v4-32"]
    assert rows[1].endswith("accelerator type 'v9-1' does not exist")
    for form in ("table", "html", "json"):
        code, text = run(module, "--accelerator-type", "v9-1", "--compare", "v4-32", "-o", form)
        assert code == 1
        assert "does not exist" in text and "v4-32" in text


def test_a_program_that_does_not_fit_is_told_in_full_and_fails(asked: Asked, module: str) -> None:
    asked.small = ("v2-8",)
    code, text = run(module, "--accelerator-type", "v2-8")
    assert code == 1
    assert "DOES NOT FIT" in text and "The largest arrays:" in text
    code, text = run(module, "--compare", "v2-8")
    assert code == 0
    assert "does not fit, says the compiler" in text


@pytest.mark.parametrize(
    ("form", "check"),
    [
        ("table", lambda text: text.startswith("v3-8: 10.0 ms per step")),
        ("json", lambda text: json.loads(text)["modelledSeconds"] == 10e-3),
        ("html", lambda text: text.startswith("<!doctype html>") and text.endswith("</html>\n")),
    ],
)
def test_output_goes_to_a_file(
    asked: Asked, module: str, tmp_path: Path, form: str, check: Callable[[str], bool]
) -> None:
    out = tmp_path / "out"
    assert run(module, "-o", form, "--out", str(out)) == (0, "")
    assert check(out.read_text(encoding="utf-8"))


def test_a_failure_leaves_the_old_file(asked: Asked, module: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("yesterday's")
    with pytest.raises(PodyardError):
        run(module, "--accelerator-type", "v9-1", "--out", str(out), "--trace", str(out))
    assert out.read_text() == "yesterday's"


def test_a_trace_is_written_beside(asked: Asked, module: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    code, text = run(module, "--trace", str(path))
    assert code == 0 and text.startswith("v3-8")
    told = json.loads(path.read_text(encoding="utf-8"))
    assert told["otherData"]["program"] == "step.mlir"
    assert {event["ph"] for event in told["traceEvents"]} == {"X", "M"}
