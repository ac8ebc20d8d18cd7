"""Runs at the start of every Python on a host: it waits for the modules that Podyard has something
for.

Standard library only, and at the top only what Python has imported already: a Python that never
imports those modules must not pay for it.
"""

import os
import sys

TYPE_CHECKING = False  # importing `typing` would cost every start of a Python some milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

# Module of the program -> the module of podyard.programs whose `apply` gets it once it is imported.
_SHIMS = {
    "jax._src.distributed": "jax_coordinator",
    "jax": "jax_program",
    "tensorflow": "tensorflow_program",
    "tensorflow_estimator.python.estimator.tpu.tpu_estimator": "tensorflow_1",
    "keras": "keras_program",
    "fastai.optimizer": "torch_graph.fastai_steps",
    "jax._src.export._export": "jax_export",
    "jax.experimental.pallas": "jax_pallas",
    "orbax.checkpoint": "orbax_program",
    "orbax.checkpoint.experimental.v1": "orbax_program",
}
# The same, where the environment names a folder of data sets.
_DATASET_SHIMS = {
    "urllib.request": "datasets.downloads",
    "torchvision.datasets.utils": "datasets.checks",
    "keras.src.utils.file_utils": "datasets.checks",  # Keras 3
    "keras.src.utils.data_utils": "datasets.checks",  # Keras 2.13 and newer
    "keras.utils.data_utils": "datasets.checks",
}
if os.environ.get("PODYARD_DATASET_MIRROR"):
    _SHIMS.update(_DATASET_SHIMS)
_HERE = __file__.rpartition("/")[0]


class _Finder:
    """Finds nothing by itself: it lets the others find, and has `apply` run after the module."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "Any" = None
    ) -> "Any":
        if name == "torch_xla" and os.environ.get("PODYARD_TPU", "off") not in ("", "off"):
            return _load("torch_xla_package").find_spec(
                lambda: self._is_installed(name, path, target)
            )
        if name not in _SHIMS:
            return None
        spec = self._is_installed(name, path, target)
        if spec is not None and spec.loader is not None:
            _run_after(spec.loader, _SHIMS[name])
        return spec

    def find_distributions(self, context: "Any" = None) -> "Any":
        """Of torch_xla, for importlib.metadata."""
        name = getattr(context, "name", None)
        if name is None or name.replace("-", "_") != "torch_xla":
            return iter(())
        return iter(
            _load("torch_xla_package").find_distributions(lambda: self._is_installed("torch_xla"))
        )

    def _is_installed(
        self, name: str, path: "Sequence[str] | None" = None, target: "Any" = None
    ) -> "Any":
        found = (
            finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self
        )
        return next((spec for spec in found if spec is not None), None)


def _run_after(loader: "Any", shim: str) -> None:
    run = loader.exec_module

    def exec_module(module: "ModuleType") -> None:
        # Without chips, JAX would not look for the slice that it runs on.
        forced = module.__name__ == "jax" and os.environ.get("PODYARD_TPU", "off") not in (
            "",
            "off",
        )
        if forced and "JAX_FORCE_TPU_INIT" not in os.environ:
            os.environ["JAX_FORCE_TPU_INIT"] = "1"
            try:
                run(module)
            finally:
                # not for its children, whose hook may be switched off
                del os.environ["JAX_FORCE_TPU_INIT"]
        else:
            run(module)
        try:
            _load(shim).apply(module)
        except Exception as error:
            if forced:
                module.config.update("jax_platforms", "cpu")  # a plain machine
            print(
                f"podyard: {shim} does not work here, {module.__name__} stays as it is: {error!r}",
                file=sys.stderr,
            )

    loader.exec_module = exec_module


def _load(shim: str) -> "Any":
    """A module of podyard.programs."""
    import importlib

    _make_importable()
    return importlib.import_module(f"podyard.programs.{shim}")


def _make_importable() -> None:
    """This Python need not have Podyard: then the folder that this file is in does."""
    import importlib.util
    from types import ModuleType

    if "podyard" not in sys.modules and importlib.util.find_spec("podyard") is None:
        package = ModuleType("podyard")
        package.__path__ = [_HERE.rpartition("/programs/")[0]]
        sys.modules["podyard"] = package


def _run_the_users() -> None:
    """The sitecustomize that Python would have run without this one, with the errors that it
    has."""
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


def wait_for_modules() -> None:
    sys.meta_path.insert(0, _Finder())


def tell_stacks() -> None:
    """A job's program writes what its threads are doing to stderr when it is asked: `podyard job
    stacks`."""
    try:
        import faulthandler

        faulthandler.register(3, file=2, all_threads=True)  # SIGQUIT, as Java does
    except (ImportError, AttributeError, OSError, ValueError, RuntimeError):
        pass


if __name__ == "sitecustomize":
    wait_for_modules()
    if "PODYARD_PROGRAM" in os.environ:
        tell_stacks()
    _run_the_users()
