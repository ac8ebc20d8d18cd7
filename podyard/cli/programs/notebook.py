"""`%load_ext podyard`: a TPU around a notebook. `PODYARD_TPU` names the type; without it, the one
that Colab had."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from podyard.cli.kit.output import say
from podyard.cli.programs.program_environment import ProgramOptions, environments_of
from podyard.cli.programs.run_program import lines, start_estimator, wait_for_estimates
from podyard.cli.programs.run_report.prices import zone_of
from podyard.hardware.accelerator_types import parse
from podyard.programs import records
from podyard.programs import slice as slices

TYPE_USUAL = "v2-8"


def load(ipython: Any) -> None:
    """Registers `%tpu_report`. Raises INVALID_ARGUMENT for an unknown type."""
    asked = os.environ.get(slices.TYPE_VARIABLE) or TYPE_USUAL
    if asked == slices.OFF:
        say(f"podyard: {slices.TYPE_VARIABLE} is off: this notebook runs as on a plain machine")
        return
    kind = parse(asked)
    options = ProgramOptions(kind, zone_of(kind, None), workers=1)
    run = Path(tempfile.mkdtemp(prefix="podyard-run-"))
    atexit.register(shutil.rmtree, run, ignore_errors=True)
    stack = ExitStack()
    atexit.register(stack.close)
    process = stack.enter_context(start_estimator(run, options))
    (chosen,) = environments_of((), options, run)
    os.environ.update({name: value for name, value in chosen.items() if name != "PYTHONPATH"})

    def tpu_report(_line: str) -> None:
        """Return the report on the modules that this notebook has run."""
        records.write_now()
        print("\n".join(lines(wait_for_estimates(run, options, process), options)))

    ipython.register_magic_function(tpu_report, "line")
    if "jax" in sys.modules:
        _apply_now(sys.modules["jax"])
    else:
        from podyard.programs.site_hook import sitecustomize

        sitecustomize.wait_for_modules()
    say(
        f"podyard: programs in this notebook run on {kind.name} from here on; %tpu_report says "
        "what they take there"
    )


def _apply_now(jax: Any) -> None:
    from podyard.programs import jax_internals, jax_program

    if jax_internals.has_backends():
        say(
            "podyard: JAX has its devices already: restart the kernel, and load the extension "
            "before they are used"
        )
    else:
        jax_program.apply(jax)
