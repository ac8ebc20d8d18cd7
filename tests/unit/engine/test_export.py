"""Models that leave: what an export holds, that its answers have the bits of the run, and what is
refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import yaml
from jax import export as jax_export

from podyard.base.errors import Code, PodyardError
from podyard.base.rng import Streams
from podyard.cli.kit import commands
from podyard.cli.programs import predict
from podyard.engine.exact import client
from podyard.engine.exported import MANIFEST, MODEL, PROGRAM, Exported, load
from podyard.engine.recipes.layers import conv, max_pool
from podyard.engine.recipes.programs import model_of
from podyard.engine.training import export, programs
from podyard.engine.training.optimizers import Adam
from podyard.engine.training.programs import Layouts, TrainState
from podyard.engine.training.recipe import Batch, Trainable, Variables
from podyard.engine.training.store import FileStore

pytestmark = pytest.mark.slow

ABOUT = {"recipe": "small", "arguments": {"depth": 2}, "seed": 7}
STEP = 12
RNG_SEED = 11


@dataclasses.dataclass(frozen=True)
class Small:
    """A convolution, pooling, running averages and two dense layers; the answers are floats, so
    that bits show.

    Sorted by name and as a tree, its parameters come in another order, and two of them have one
    shape."""

    answers: Callable[[Any, Batch], Any] = lambda scores, _batch: scores

    def init(self, streams: Streams) -> Variables:
        rng = np.random.default_rng(RNG_SEED)

        def tensor(*shape: int) -> Any:
            return rng.standard_normal(shape).astype(np.float32)

        params = {
            "conv": tensor(3, 3, 2, 4),
            "dense": {"kernel": tensor(64, 64)},
            "dense-2": tensor(64, 64),
        }
        return Variables(params, {"mean": tensor(4), "deviation": 1 + abs(tensor(4))})

    def predict(self, params: Any, statistics: Any, batch: Batch) -> Any:
        assert batch["label"].shape == batch["image"].shape[:1]
        x = max_pool(conv(batch["image"], params["conv"]), 2, 2)
        x = (x - statistics["mean"]) / statistics["deviation"]
        x = jax.nn.relu(x.reshape(x.shape[0], -1)) @ params["dense"]["kernel"]
        return self.answers(jnp.tanh(0.01 * x) @ params["dense-2"], batch)

    def optimizer(self, _global_batch: int) -> Adam:
        return Adam(1e-3)

    input = loss = evaluate = None


@dataclasses.dataclass(frozen=True)
class Trained:
    model: Trainable
    layouts: Layouts
    state: TrainState

    def predict(self, batch: Batch) -> Any:
        return programs.predict(self.model, self.layouts, self.state, [batch])

    def written(self, folder: Path, example: Batch) -> Path:
        store = FileStore(folder)
        names = export.write(store, self.model, self.layouts, self.state, example, ABOUT)
        assert sorted(names) == store.list("")
        assert names[-1] == "export/manifest.json"
        return folder / "export"


def trained(model: Any) -> Trained:
    layouts, variables = programs.layouts_of(model, 3), model.init(Streams(3))
    params, statistics = (
        layouts.params.flatten(variables.params),
        layouts.statistics.flatten(variables.statistics),
    )
    return Trained(model, layouts, TrainState(STEP, params, statistics, {}))


def batch_of(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(count)
    image = rng.standard_normal((count, 8, 8, 2)).astype(np.float32)
    return {"image": image, "label": rng.integers(0, 9, count).astype(np.int32)}


def images_of(count: int) -> dict[str, Any]:
    return {"image": batch_of(count)["image"]}


@pytest.fixture(scope="module")
def small() -> Trained:
    return trained(Small())


@pytest.fixture(scope="module")
def kept(small: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export that nobody changes."""
    return small.written(tmp_path_factory.mktemp("kept"), batch_of(3))


@pytest.fixture
def folder(kept: Path, tmp_path: Path) -> Path:
    """An export to spoil."""
    for file in kept.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.fixture(scope="module")
def model(kept: Path) -> Exported:
    return load(kept)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_answers_have_the_bits_of_the_runs_own(small: Trained, model: Exported, count: int) -> None:
    answers = model.predict(images_of(count))
    assert (answers.dtype.name, answers.shape) == ("float32", (count, 64))
    assert answers.tobytes() == small.predict(batch_of(count)).tobytes()
    # The array's rounding, not plain float32: these bits tell.
    variables = small.model.init(Streams(3))
    plain = jax.jit(small.model.predict)(variables.params, variables.statistics, batch_of(count))
    assert answers.tobytes() != np.asarray(plain).tobytes()


@pytest.mark.parametrize("recipe", ["digits-cnn", "mnist-cnn", "fashion-cnn", "cifar10-cnn", "mlp"])
def test_every_recipe_that_trains_can_leave(tmp_path: Path, recipe: str) -> None:
    recipe_model = model_of(recipe, {})
    batch = recipe_model.sample_batch(Streams(5), 6)
    of_recipe = trained(recipe_model)
    loaded = load(of_recipe.written(tmp_path, batch))
    assert list(loaded.inputs) == ["image"] and loaded.batch_size is None
    answers = loaded.predict({"image": batch["image"]})
    expected = of_recipe.predict(batch)
    assert (answers.dtype, answers.tobytes()) == (expected.dtype, expected.tobytes())


def test_the_manifest_says_what_is_there(kept: Path, small: Trained) -> None:
    manifest = json.loads((kept / MANIFEST).read_text())
    assert {key: manifest[key] for key in ABOUT} == ABOUT
    assert (manifest["format"], manifest["step"], manifest["batch"]) == (1, STEP, None)
    assert manifest["inputs"] == {"image": {"dtype": "float32", "shape": [8, 8, 2]}}
    assert manifest["outputs"] == {"dtype": "float32", "shape": [64]}
    assert manifest["parameters"] == {
        "conv": [3, 3, 2, 4],
        "dense-2": [64, 64],
        "dense/kernel": [64, 64],
    }
    assert manifest["statistics"] == {"deviation": [4], "mean": [4]}
    assert manifest["jax"] == jax.__version__
    for name in (MODEL, PROGRAM):
        data = (kept / name).read_bytes()
        assert manifest["files"][name] == {
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
        }
    tensors = safetensors.numpy.load((kept / MODEL).read_bytes())
    variables = small.model.init(Streams(3))
    assert tensors["params/dense-2"].tobytes() == variables.params["dense-2"].tobytes()
    assert tensors["params/dense/kernel"].tobytes() == variables.params["dense"]["kernel"].tobytes()
    assert tensors["statistics/mean"].tobytes() == variables.statistics["mean"].tobytes()


_STRANGER = """
import sys
from pathlib import Path
import numpy as np
from podyard.engine.exported import load
image = np.load(sys.argv[2])["image"]
answers = load(Path(sys.argv[1])).predict({"image": image})
ours = {name for name in sys.modules if name.startswith("podyard.")}
assert ours <= {"podyard.base", "podyard.base.errors", "podyard.base.error_details", "podyard.base.spelling",
                "podyard.engine", "podyard.engine.exported"}, ours
sys.stdout.buffer.write(answers.tobytes())
"""  # noqa: E501


def test_a_process_that_knows_nothing_of_training_gives_the_same_bits(
    kept: Path, small: Trained, tmp_path: Path
) -> None:
    np.savez(tmp_path / "images.npz", **images_of(5))
    told = subprocess.run(
        [sys.executable, "-c", _STRANGER, str(kept), str(tmp_path / "images.npz")],
        capture_output=True,
        check=True,
        env={"JAX_PLATFORMS": "cpu", "NPROC": "2", "PYTHONPATH": ":".join(sys.path)},
    )
    assert told.stdout == small.predict(batch_of(5)).tobytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "reads image, and was given nothing"),
        (batch_of(2), "reads image, and was given image, label"),
        (
            {"image": np.zeros((2, 8, 8, 2))},
            r"image is float64\[2, 8, 8, 2\]; the model reads float32\[examples, 8",
        ),
        ({"image": np.zeros((2, 8, 2), np.float32)}, r"image is float32\[2, 8, 2\]"),
        ({"image": np.float32(1)}, r"image is float32\[\]"),
        ({"image": np.zeros((0, 8, 8, 2), np.float32)}, "no example"),
    ],
    ids=["nothing", "labels too", "another type", "another shape", "a scalar", "no example"],
)
def test_what_the_model_does_not_read_is_refused(model: Exported, given: Any, message: str) -> None:
    with pytest.raises(PodyardError, match=message) as caught:
        model.predict(given)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_features_that_answers_depend_on_are_demanded_and_belong_together(tmp_path: Path) -> None:
    both = trained(Small(lambda scores, batch: scores + batch["label"][:, None]))
    loaded = load(both.written(tmp_path, batch_of(2)))
    assert list(loaded.inputs) == ["image", "label"]
    assert loaded.predict(batch_of(4)).tobytes() == both.predict(batch_of(4)).tobytes()
    with pytest.raises(PodyardError, match="different numbers of examples") as caught:
        loaded.predict({**batch_of(4), "label": np.zeros(3, np.int32)})
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_model_that_counts_by_its_batch_is_asked_in_pieces_of_the_examples_size(
    tmp_path: Path,
) -> None:
    by_rows = Small(
        lambda scores, _batch: jnp.stack([scores[row] * 2 for row in range(scores.shape[0])])
    )
    counting = trained(by_rows)
    loaded = load(counting.written(tmp_path, batch_of(4)))
    assert loaded.batch_size == 4
    given = batch_of(10)
    pieces = [
        {name: array[start : start + 4] for name, array in given.items()} for start in (0, 4, 6)
    ]
    expected = [counting.predict(piece) for piece in pieces]
    answers = loaded.predict({"image": given["image"]})
    assert answers.tobytes() == np.concatenate([*expected[:2], expected[2][2:]]).tobytes()


@pytest.mark.parametrize(
    ("answers", "code", "message"),
    [
        (lambda scores, _: {"one": scores, "two": scores}, Code.INVALID_ARGUMENT, "gives 2 arrays"),
        (lambda scores, _: scores.sum(), Code.INVALID_ARGUMENT, r"gives \[\] for"),
        (lambda scores, _: scores[1:], Code.INVALID_ARGUMENT, "an answer per example"),
        (
            lambda scores, _: jnp.ones(scores.shape),
            Code.FAILED_PRECONDITION,
            "depend on no feature",
        ),
    ],
    ids=["two arrays", "one number", "fewer", "constant"],
)
def test_a_model_that_cannot_be_asked_leaves_nothing(
    tmp_path: Path, answers: Any, code: Code, message: str
) -> None:
    with pytest.raises(PodyardError, match=message) as caught:
        trained(Small(answers)).written(tmp_path, batch_of(4))
    assert caught.value.code is code
    assert list(tmp_path.iterdir()) == []


def test_a_models_own_error_is_told(tmp_path: Path) -> None:
    def fails(_scores: Any, _batch: Batch) -> Any:
        raise ZeroDivisionError("the model's own")

    with pytest.raises(ZeroDivisionError, match="the model's own"):
        trained(Small(fails)).written(tmp_path, batch_of(4))


def change(folder: Path, **changes: Any) -> None:
    """Of the manifest."""
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | changes))


def replace(folder: Path, name: str, data: bytes) -> None:
    """A file, with the manifest's checksum of it."""
    (folder / name).write_bytes(data)
    files = json.loads((folder / MANIFEST).read_text())["files"]
    change(
        folder,
        files={**files, name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}},
    )


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


SHAPES = {"conv": [3, 3, 2, 4], "dense-2": [64, 64], "dense/kernel": [64, 64]}
SPOILED: dict[str, tuple[Callable[[Path], object], Code, str]] = {
    "not there": (
        lambda at: (at / MANIFEST).unlink(),
        Code.NOT_FOUND,
        "manifest.json' was not found",
    ),
    "torn": (lambda at: (at / MANIFEST).write_text('{"format": 1,'), Code.DATA_LOSS, "is not JSON"),
    "a list": (
        lambda at: (at / MANIFEST).write_text("[]"),
        Code.DATA_LOSS,
        "manifest is incomplete",
    ),
    "no inputs": (lambda at: change(at, inputs=None), Code.DATA_LOSS, "manifest is incomplete"),
    "odd inputs": (
        lambda at: change(at, inputs={"image": 3}),
        Code.DATA_LOSS,
        "manifest is incomplete",
    ),
    "odd batch": (lambda at: change(at, batch="many"), Code.DATA_LOSS, "manifest is incomplete"),
    "newer": (lambda at: change(at, format=2), Code.FAILED_PRECONDITION, "has format 2, not 1"),
    "newer jax": (
        lambda at: change(at, callingConvention=99),
        Code.FAILED_PRECONDITION,
        "calling conventions .* not 99",
    ),
    "tensors flipped": (
        lambda at: flip(at / MODEL),
        Code.DATA_LOSS,
        "model.safetensors do not have the checksum",
    ),
    "program flipped": (
        lambda at: flip(at / PROGRAM),
        Code.DATA_LOSS,
        "predict.stablehlo do not have the checksum",
    ),
    "program gone": (
        lambda at: (at / PROGRAM).unlink(),
        Code.DATA_LOSS,
        "predict.stablehlo cannot be read",
    ),
    "no checksum": (lambda at: change(at, files={}), Code.DATA_LOSS, "checksum"),
    "no tensors": (
        lambda at: replace(at, MODEL, b"none"),
        Code.DATA_LOSS,
        "model.safetensors cannot be read",
    ),
    "fewer tensors": (
        lambda at: replace(at, MODEL, safetensors.numpy.save({})),
        Code.DATA_LOSS,
        "tensors of model.safetensors are not those",
    ),
    "no program": (
        lambda at: replace(at, PROGRAM, b"none"),
        Code.FAILED_PRECONDITION,
        "which cannot read it",
    ),
    "another input": (
        lambda at: change(at, inputs={"image": {"dtype": "float32", "shape": [9, 8, 2]}}),
        Code.DATA_LOSS,
        "program is not the one",
    ),
    "another size": (lambda at: change(at, batch=4), Code.DATA_LOSS, "program is not the one"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_export_is_refused_with_its_reason(folder: Path, name: str) -> None:
    spoil, code, message = SPOILED[name]
    spoil(folder)
    with pytest.raises(PodyardError, match=message) as caught:
        load(folder)
    assert caught.value.code is code


def test_the_compiler_gets_the_options_of_the_manifest_that_it_knows_and_that_are_harmless(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "xla_cpu_multi_thread_eigen": False,
        "xla_cpu_unheard_of": 1,
        "xla_dump_to": str(folder / "dump"),
    }
    change(folder, compilerOptions=options)
    given: list[Any] = []
    jit: Any = jax.jit

    def recording(fn: Any, **keywords: Any) -> Any:
        given.append(keywords.get("compiler_options"))
        return jit(fn, **keywords)

    monkeypatch.setattr(jax, "jit", recording)
    assert load(folder).predict(images_of(2)).shape == (2, 64)
    assert given[-1] == {"xla_cpu_multi_thread_eigen": False}
    assert not (folder / "dump").exists()


def test_an_export_for_other_hardware_alone_is_refused(
    tmp_path: Path, small: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "PLATFORMS", ("tpu",))
    with pytest.raises(PodyardError, match="is for tpu, not for CPUs") as caught:
        load(small.written(tmp_path, batch_of(2)))
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_the_program_is_for_tpus_too(kept: Path) -> None:
    program = jax_export.deserialize(bytearray((kept / PROGRAM).read_bytes()))
    assert program.platforms == ("cpu", "tpu", "cuda")
    tensors = safetensors.numpy.load((kept / MODEL).read_bytes())
    params, statistics = (
        {
            name.removeprefix(prefix): value
            for name, value in tensors.items()
            if name.startswith(prefix)
        }
        for prefix in ("params/", "statistics/")
    )
    text = client.lower_for_tpu(program.call, params, statistics, images_of(16))
    assert "tensor<16x8x8x2xf32>" in text and text.count("stablehlo.reduce_precision") >= 6
    if client.is_installed():
        assert client.compile_exact(text, "v3-8").fits


class _Failing(FileStore):
    def put(self, name: str, data: bytes) -> None:
        if name.endswith(MANIFEST):
            raise OSError("no room")
        super().put(name, data)


def test_an_export_that_was_not_finished_is_none(tmp_path: Path, small: Trained) -> None:
    with pytest.raises(OSError, match="no room"):
        export.write(
            _Failing(tmp_path), small.model, small.layouts, small.state, batch_of(2), ABOUT
        )
    assert len(list((tmp_path / "export").iterdir())) == 2
    with pytest.raises(PodyardError) as caught:
        load(tmp_path / "export")
    assert caught.value.code is Code.NOT_FOUND


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the command."""
    with pytest.raises(SystemExit) as ended:
        commands.run(["predict", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of five examples. The environment that the command sets up is undone here."""
    for name in ("JAX_PLATFORMS", "NPROC", "TPU_SKIP_MDS_QUERY"):
        monkeypatch.setenv(name, "")
    np.savez(tmp_path / "images.npz", **images_of(5))
    return tmp_path / "images.npz"


def test_the_command_prints_answers_and_writes_them(
    kept: Path,
    small: Trained,
    asked: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asking = ["--export", str(kept), "--input", str(asked)]
    expected = small.predict(batch_of(5))
    code, out, _ = told([*asking, "-o", "json"], capsys)
    assert code == 0 and np.array_equal(np.array(json.loads(out), np.float32), expected)
    code, out, _ = told([*asking, "-o", "yaml"], capsys)
    assert code == 0 and np.array_equal(np.array(yaml.safe_load(out), np.float32), expected)
    code, out, _ = told(asking, capsys)
    lines = out.splitlines()
    assert (code, lines[0].split(), len(lines)) == (0, ["EXAMPLE", "ANSWER"], 6)
    target = asked.parent / "answers.npz"
    monkeypatch.setattr(predict, "PIECE", 2)
    code, out, err = told([*asking, "-o", str(target)], capsys)
    assert (code, out, err) == (0, "", f"5 answers in {target}\n")
    pieces = [
        {name: array[start : start + 2] for name, array in batch_of(5).items()}
        for start in (0, 2, 4)
    ]
    assert np.load(target)["answers"].tobytes() == b"".join(
        small.predict(piece).tobytes() for piece in pieces
    )


def test_what_goes_wrong_is_one_line_and_exit_code_two(
    kept: Path, asked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(asked.parent / "other.npz", picture=np.zeros(3, np.float32))
    np.savez(asked.parent / "objects.npz", image=np.array([{}], object))
    wrong = [
        (kept.parent, asked, "json", "Error: (NOT_FOUND) Resource '"),
        (kept, asked.parent / "gone.npz", "json", "Error: (NOT_FOUND) "),
        (kept, kept / MANIFEST, "json", "Error: (INVALID_ARGUMENT) "),
        (kept, asked.parent / "objects.npz", "json", "Error: (INVALID_ARGUMENT) "),
        (
            kept,
            asked.parent / "other.npz",
            "json",
            "Error: (INVALID_ARGUMENT) the model reads image, and was given pict",
        ),
        (kept, asked, str(asked.parent / "no" / "x.npz"), "Error: (INVALID_ARGUMENT) "),
    ]
    for export_folder, source, form, line in wrong:
        code, out, err = told(
            ["--export", str(export_folder), "--input", str(source), "-o", form], capsys
        )
        assert (code, out, err[: len(line)], err.count("\n")) == (2, "", line, 1)
    code, _, err = told(["--export", str(kept), "--input", str(asked), "-o", "csv"], capsys)
    assert (
        code == 2
        and "unknown output 'csv': use table, json, yaml, or a file name that ends in .npz" in err
    )
