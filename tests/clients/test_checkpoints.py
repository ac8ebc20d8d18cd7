"""A checkpoint of the engine in plain JAX, Keras and PyTorch, by the names that docs/export.md
gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from podyard.engine.recipes.digits import load_digits
from tests.clients.client import ENVIRONMENTS
from tests.conftest import require
from tests.stack import PODYARD, Stack

ZONE = "us-central1-f"
PROGRAMS = Path(__file__).parent / "programs"
IMAGES = 200
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients")]


@pytest.fixture(scope="module")
def folder(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """parameters.npz and images.npz of a job, and expected.npz: what its export answers."""
    from safetensors.numpy import load_file

    found = tmp_path_factory.mktemp("checkpoint")
    stack.create_node("checkpoint", "v2-8", ZONE)
    path = stack.submit(
        "checkpoint", ZONE, node="checkpoint", steps=60, training={"exportAtEnd": True}
    )
    assert stack.wait_job(path)["state"] == "SUCCEEDED"
    ours = ["--data", str(stack.data)]
    download = ["job", "download", "checkpoint", "--zone", ZONE, "--checkpoints", "-o", str(found)]
    subprocess.run([*PODYARD, *download, *ours], check=True, timeout=60)
    (file,) = (found / "checkpoints").glob("*60*.safetensors")
    parameters = {
        n.removeprefix("params/"): a for n, a in load_file(file).items() if n.startswith("params/")
    }
    np.savez(found / "parameters.npz", **parameters)  # type: ignore[arg-type]
    images = load_digits().test.slice(0, IMAGES)["image"]
    np.savez(found / "images.npz", image=images)
    predict = ["predict", "--export", str(found / "export"), "--input", str(found / "images.npz")]
    subprocess.run([*PODYARD, *predict, "-o", str(found / "expected.npz")], check=True, timeout=120)
    return found


def _scores(folder: Path, environment: str, program: str, *options: str) -> NDArray[np.float32]:
    python = ENVIRONMENTS / environment / "bin" / "python"
    require(
        str(python) if python.is_file() else None, f"the environment {environment} of `make real`"
    )
    scores = folder / f"{environment}.npy"
    command = [str(python), "-W", "ignore", str(PROGRAMS / program)]
    files = [str(folder / "parameters.npz"), str(folder / "images.npz"), str(scores)]
    done = subprocess.run([*command, *files, *options], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return np.asarray(np.load(scores))


def _in_plain_jax(folder: Path) -> NDArray[np.float32]:
    import jax
    from jax import lax, nn
    from jax import numpy as jnp

    of = {name: jnp.asarray(array) for name, array in np.load(folder / "parameters.npz").items()}

    def conv(name: str, x: jax.Array) -> jax.Array:
        layout = ("NHWC", "HWIO", "NHWC")
        made = lax.conv_general_dilated(
            x, of[f"{name}/kernel"], (1, 1), "SAME", dimension_numbers=layout
        )
        return nn.relu(made + of[f"{name}/bias"])

    x = conv("conv2", conv("conv1", jnp.asarray(np.load(folder / "images.npz")["image"])))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").reshape(
        IMAGES, -1
    )
    x = nn.relu(x @ of["dense1/kernel"] + of["dense1/bias"])
    return np.asarray(x @ of["dense2/kernel"] + of["dense2/bias"])


def test_all_frameworks_give_the_scores_of_one_another_and_the_answers_of_the_export(
    folder: Path,
) -> None:
    expected = np.load(folder / "expected.npz")["answers"]
    plain = _in_plain_jax(folder)
    # The export has the matrix unit's rounding: an answer may differ only where two classes are
    # close.
    clear = np.ptp(np.sort(plain, axis=1)[:, -2:], axis=1) > 0.05
    assert clear.sum() > 0.9 * IMAGES
    assert (plain.argmax(axis=1) == expected)[clear].all()
    for name, program, *options in (
        ("flax", "checkpoint_keras.py", "--jax"),
        ("tf", "checkpoint_keras.py"),
        ("torch", "checkpoint_torch.py"),
    ):
        scores = _scores(folder, name, program, *options)
        assert np.abs(scores - plain).max() < 1e-3, name
