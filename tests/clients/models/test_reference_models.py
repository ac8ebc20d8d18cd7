"""Checkpoints of resnet-50 and transformer-lm in Keras and PyTorch, by the listings of
docs/howto/reference-models.md: logits are equal to 1e-5 in float32."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from podyard.base.rng import Streams
from podyard.engine.recipes.resnet import ResNet
from podyard.engine.recipes.transformer import TransformerLm
from podyard.engine.training.layout import ParameterLayout
from tests.clients.client import ENVIRONMENTS
from tests.conftest import require
from tests.distributed.documents.blocks import blocks_of
from tests.stack import PODYARD, Stack

ZONE = "us-central1-f"
PROGRAM = Path(__file__).parents[1] / "programs" / "reference_model.py"
PAGE = "docs/howto/reference-models.md"
SECONDS_MAX = 900.0  # a job's compiling, on a busy machine
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedModel:
    """A recipe at the size that the page has, and the environment that its listing runs in."""

    recipe: str
    job: str
    arguments: Mapping[str, Any]
    listing: str
    environment: str


MODELS = (
    LoadedModel("resnet-50", "small", {"imageSize": 32, "classes": 10}, "import keras", "flax"),
    LoadedModel(
        "transformer-lm",
        "lm",
        {"layers": 2, "width": 64, "heads": 4, "sequence": 64, "vocabulary": 256},
        "import torch",
        "torch",
    ),
)


def _inputs(recipe: str) -> NDArray[Any]:
    drawn = np.frombuffer(Streams(0).stream("inputs").randbytes(4 * 3 * 1024), np.uint8)
    if recipe == "resnet-50":
        return drawn.reshape(4, 32, 32, 3).astype(np.float32) / 255 - 0.5
    return drawn[: 4 * 64].reshape(4, 64).astype(np.int64)


def _logits(recipe: str, file: Path, inputs: Any) -> NDArray[Any]:
    """Return those of the recipe in float32, without the rounding of the matrix unit."""
    from safetensors.numpy import load_file

    tensors = load_file(file)

    def tree(prefix: str, start: Any) -> Any:
        own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        layout = ParameterLayout.of(
            jax.tree.map(lambda tensor: np.zeros(tensor.shape, np.float32), start)
        )
        return layout.unflatten(layout.of_named(own))

    float32 = jnp.dtype("float32")
    if recipe == "resnet-50":
        network = ResNet((3, 4, 6, 3), 64, 10, float32, 1, "v1")
        statistics = tree("statistics/", network.statistics())
        return np.asarray(
            jax.jit(network.logits)(tree("params/", network.params()), statistics, inputs)
        )
    language = TransformerLm(2, 64, 4, 64, 256, float32, scan=False, remat=False)
    return np.asarray(jax.jit(language.logits)(tree("params/", language.params()), inputs))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.recipe)
def test_a_listing_loads_the_checkpoint(stack: Stack, tmp_path: Path, model: LoadedModel) -> None:
    python = ENVIRONMENTS / model.environment / "bin" / "python"
    require(str(python) if python.is_file() else None, f"the environment {model.environment}")
    stack.create_node(model.job, "v2-8", ZONE)
    path = stack.submit(
        model.job, ZONE, node=model.job, recipe=model.recipe, arguments=model.arguments, steps=50
    )
    assert stack.wait_job(path, SECONDS_MAX)["state"] == "SUCCEEDED"
    stack.delete_node(model.job, ZONE)
    download = ("job", "download", model.job, "--zone", ZONE, "--checkpoints", "-o", model.job)
    subprocess.run(
        [*PODYARD, *download, "--data", str(stack.data)], check=True, timeout=60, cwd=tmp_path
    )
    (listing,) = (block for block in blocks_of(PAGE) if block.text.startswith(model.listing))
    (tmp_path / "listing.py").write_text(listing.text)
    inputs = _inputs(model.recipe)
    np.save(tmp_path / "inputs.npy", inputs)
    done = subprocess.run(
        [str(python), "-W", "ignore", str(PROGRAM), "listing.py", "inputs.npy", "logits.npy"],
        capture_output=True,
        text=True,
        timeout=150,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / model.job / "checkpoints").glob("*50.safetensors")
    expected = _logits(model.recipe, file, inputs)
    theirs = np.load(tmp_path / "logits.npy")
    assert theirs.shape == expected.shape and np.ptp(expected) > 0.5
    assert np.abs(theirs - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())
