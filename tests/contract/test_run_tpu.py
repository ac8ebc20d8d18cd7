"""`podyard run --tpu`: programs that know nothing of Podyard, as people start them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.stack import PODYARD
from tests.tpu_program import PROGRAMS, SECONDS
from tests.tpu_program import code as _code
from tests.tpu_program import environ as _environ
from tests.tpu_program import report as _report
from tests.tpu_program import run as _run

pytest.importorskip("jax", reason="programs under test import JAX")
pytestmark = pytest.mark.real


def test_a_program_sees_the_devices_of_the_slice_and_its_report_is_at_the_end(
    tmp_path: Path,
) -> None:
    done, report = _report(
        "--tpu v3-8 --batch 64", tmp_path, str(PROGRAMS / "data_parallel.py"), "20"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:5] == ["0", "1", "8", "8", "TPU_0(process=0,(0,0,0,0))"]
    step = next(module for module in report["modules"] if module["digest"] == report["step"])
    assert (step["name"], step["devices"], step["runs"], step["fits"]) == (
        "jit_train_step",
        8,
        20,
        True,
    )
    assert 0 < step["deviceSecondsPerRun"] < 1e-3 and 0 < step["mfu"] < 0.1
    assert (
        "step jit_train_step: " in done.stderr
        and "examples per second" in done.stderr
        and "$" in done.stderr
    )


@pytest.mark.parametrize("dry", ["", " --dry-run"])
def test_a_step_takes_as_long_as_its_function_and_its_module(tmp_path: Path, dry: str) -> None:
    """With its batch on the devices, and with one that the host sends at each step: 17 MB in 2.1
    ms."""
    script = PROGRAMS / "host_input.py"
    code = f"""
        import jax, json, runpy
        from podyard import engine
        program = runpy.run_path({str(script)!r})
        of, mesh = jax.ShapeDtypeStruct, program["MESH"]
        w = of((64, 256), "float32", sharding=program["COLUMNS"])
        x = of((65536, 64), "float32", sharding=program["ROWS"])
        found = {{}}
        for way, infeed in (("fixed", []), ("fed", ["x"])):
            found[way] = engine.analyze(program["step"], w, x, accelerator_type="v3-8", infeed=infeed).modelled_seconds
        module = jax.jit(program["step"], out_shardings=program["COLUMNS"]).lower(w, x).as_text()
        found["module"] = engine.analyze_stablehlo(module, "v3-8").modelled_seconds
        print(json.dumps(found))
    """  # noqa: E501
    done = subprocess.run(
        [sys.executable, *_code(code)], capture_output=True, text=True, timeout=SECONDS,
        env=_environ(JAX_PLATFORMS="cpu", XLA_FLAGS="--xla_force_host_platform_device_count=8"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wanted = json.loads(done.stdout)
    assert wanted["module"] == pytest.approx(wanted["fixed"], rel=0.01)
    for way in ("fixed", "put", "numpy"):
        done, report = _report(f"--tpu v3-8{dry}", tmp_path, str(script), way)
        step = next(module for module in report["modules"] if module["name"] == "jit_step")
        same = wanted["fixed" if way == "fixed" else "fed"]
        assert step["deviceSecondsPerRun"] == pytest.approx(same, rel=0.01), way
        assert ("host input 2.10 ms" in done.stderr) == (way != "fixed"), done.stderr
    assert wanted["fed"] == pytest.approx(65536 * 64 * 4 / 8e9) != wanted["fixed"]


def test_what_a_program_can_ask_its_devices() -> None:
    done = _run("--tpu v5litepod-8", *_code("""
        import jax, jax.numpy as jnp
        from jax.experimental import mesh_utils
        device = jax.devices()[5]
        print(jax.default_backend(), device.platform, device.device_kind, device.coords, device.core_on_chip, device.id)
        print(device, repr(device))
        print(jax.devices("cpu"), jax.devices("tpu")[0].id)
        before = device.memory_stats()["bytes_in_use"]
        kept = jax.device_put(jnp.ones((1024, 1024)), device)
        stats = device.memory_stats()
        print(stats["bytes_in_use"] - before, stats["bytes_limit"])
        print(mesh_utils.create_device_mesh((4, 2)).shape)
        jax.debug.print("sum {}", kept.sum())
        print(jax.jit(lambda x: jax.pure_callback(lambda x: x + 1, x, x))(jnp.zeros(2)))
        print(float(jnp.linalg.det(jnp.eye(3) * 2)), jnp.linalg.inv(jnp.eye(2) * 4)[0, 0])
        with jax.debug_nans(True):
            try:
                jax.jit(lambda x: jnp.log(x))(-1.0)
            except FloatingPointError:
                print("NaN is found", flush=True)
        exported = jax.export.export(jax.jit(lambda x: x * 2))(jax.ShapeDtypeStruct((2,), jnp.float32))
        print(exported.platforms, exported.call(jnp.ones(2)))
        print(jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(jnp.arange(8.0))[0])
    """))  # fmt: skip  # noqa: E501
    assert done.returncode == 0, done.stderr
    told = [
        line
        for line in done.stdout.splitlines()
        if not line.startswith("Invalid nan value encountered")
    ]
    assert told == [
        "tpu tpu TPU v5 lite [1, 2, 0] 0 5",
        (
            "TPU_5(process=0,(1,2,0,0)) TpuDevice(id=5, process_index=0, coords=(1,2,0), "
            "core_on_chip=0)"
        ),
        "[CpuDevice(id=0)] 0",
        "4194304 16911433728",
        "(4, 2)",
        "sum 1048576.0",
        "[1. 1.]",
        "8.0 0.25",
        "NaN is found",
        "('tpu',) [2. 2.]",
        "28.0",
    ]


@pytest.mark.parametrize("way", ["", pytest.param("initialize", marks=pytest.mark.long), "27391"])
def test_four_hosts_are_joined_with_and_without_initialize_and_at_an_own_port(way: str) -> None:
    done = _run("--tpu v3-32", str(PROGRAMS / "data_parallel.py"), "3", *([way] if way else []))
    assert done.returncode == 0, done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if "TPU_" in line)
    assert [line.split()[:6] for line in lines] == [
        ["[worker", f"{n}]", str(n), "4", "32", "8"] for n in range(4)
    ]
    assert len({line.split()[-1] for line in lines}) == 1
    assert lines[1].split()[6] == "TPU_4(process=1,(2,0,0,0))"


def test_bits_are_those_of_plain_devices_and_of_the_matrix_unit() -> None:
    program = str(PROGRAMS / "bits.py")

    def plain(*words: str) -> str:
        changes = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
        done = subprocess.run(
            [sys.executable, program, *words],
            env=_environ(**changes),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    on_tpu, in_float32 = _run("--tpu v3-8", program), _run("--tpu v3-8 --numerics f32", program)
    assert on_tpu.stdout == plain("engine"), on_tpu.stderr
    assert in_float32.stdout == plain(), in_float32.stderr
    assert len(on_tpu.stdout.splitlines()) == 9
    (same,) = set(on_tpu.stdout.splitlines()) & set(in_float32.stdout.splitlines())
    assert same.startswith("vectors ")  # the vector unit computes them in float32


def test_many_steps_that_nobody_waits_for_end() -> None:
    done = _run("--tpu v3-8", str(PROGRAMS / "data_parallel.py"), "1000")
    assert done.returncode == 0, done.stderr


# Prints the memory of the largest process below it.
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def test_a_model_of_seven_billion_parameters_runs_dry_on_two_slices(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    options = f"--tpu v5p-128,v5litepod-64 --dry-run --steps 2 --batch 128 --report {file}"
    command = [
        *PODYARD,
        "run",
        *options.split(),
        "--",
        sys.executable,
        str(PROGRAMS / "llama.py"),
        "2",
    ]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command],
        env=_environ(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    reports = json.loads(file.read_text())
    for report in reports:
        step = next(module for module in report["modules"] if module["digest"] == report["step"])
        assert (step["name"], step["devices"], step["runs"]) == ("jit_train_step", 64, 2)
        # Parameters and AdamW's two moments in float32, split over 64 devices; the batch; norms and
        # counts are whole.
        assert abs(step["argumentBytes"] / (3 * 4 * 6_738_415_616 / 64) - 1) < 0.01
    assert [line.split()[0] for line in done.stderr.splitlines()[-4:]] == [
        "TYPE",
        "v5p-128",
        "v5litepod-64",
        "EXPECTED:",
    ]
    if sys.platform == "linux":
        assert int(done.stdout.split()[-1]) < 1 << 20  # KiB


def test_a_dry_run_computes_what_is_small_and_ends_a_program_that_would_go_on() -> None:
    done = _run("--tpu v3-8 --dry-run --steps 4", *_code("""
        import jax, jax.numpy as jnp
        @jax.jit
        def step(x):
            return x + 1
        x = jnp.zeros(8)
        while True:
            x = step(x)
            print(x[0], flush=True)
    """))  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, ["1.0", "2.0", "3.0", "4.0"]), done.stderr
    assert "dry run: nothing large was computed" in done.stderr


def test_a_dry_run_answers_what_a_program_asks_of_a_compiled_step() -> None:
    done = _run("--tpu v5litepod-8 --dry-run", *_code("""
        import jax, jax.numpy as jnp
        x = jax.ShapeDtypeStruct((8192, 8192), jnp.float32)
        compiled = jax.jit(lambda x: x @ x).lower(x).compile()
        found = compiled.memory_analysis()
        print(found.argument_size_in_bytes, found.output_size_in_bytes, compiled.cost_analysis()["flops"])
        print(compiled.as_text())
    """))  # fmt: skip  # noqa: E501
    assert done.stdout.splitlines() == [
        f"{4 * 8192**2} {4 * 8192**2} {2.0 * 8192**3}",
        "None",
    ], done.stderr


def test_a_dry_run_without_shardy_is_refused_in_words() -> None:
    program = str(PROGRAMS / "data_parallel.py")
    done = _run("--tpu v3-8 --dry-run", program, "2", JAX_USE_SHARDY_PARTITIONER="0")
    assert done.returncode == 1
    assert "a dry run needs Shardy: JAX_USE_SHARDY_PARTITIONER must not be 0" in done.stderr


def test_where_the_hook_fails_a_program_runs_as_on_a_plain_machine() -> None:
    from podyard.programs import SITE_HOOK

    environ = _environ(PYTHONPATH=str(SITE_HOOK), PODYARD_TPU="v3-9")
    code = "import jax; print(jax.default_backend(), jax.numpy.ones(2).sum())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=SECONDS
    )
    assert (done.returncode, done.stdout) == (0, "cpu 2.0\n"), done.stderr
    assert "podyard: jax_program does not work here, jax stays as it is" in done.stderr


def test_what_follows_from_what_a_dry_run_did_not_compute_is_not_computed_either() -> None:
    done = _run("--tpu v3-8 --dry-run --steps 9", *_code("""
        import jax, jax.numpy as jnp
        large = jax.jit(lambda: jnp.ones((30_000, 30_000)))()
        loss = jax.jit(lambda x: (x.mean(), x[0]))(large)[0]
        print(float(loss), float(loss + 1), float(jnp.ones(()) + 1), int(jnp.arange(4).sum()))
    """))  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "0.0 0.0 2.0 6\n"), done.stderr


def test_programs_may_be_started_with_a_pythonpath_of_their_own() -> None:
    script = (
        "import os; os.execle('/bin/sh', 'sh', '-c', 'PYTHONPATH=src exec \"$P\" -c "
        '"$C"\', os.environ)'
    )
    done = _run(
        "--tpu v3-8", "-c", script, P=sys.executable, C="import jax; print(jax.devices()[7])"
    )
    assert (done.returncode, done.stdout) == (0, "TPU_7(process=0,(1,1,0,1))\n"), done.stderr


LARGE = """
    import jax, jax.numpy as jnp
    def scores():  # two arrays of 4.8 GiB at the same time
        x = jnp.ones((36_000, 36_000), jnp.float32)
        y = jax.nn.softmax(x @ x, axis=0)
        return (jax.nn.softmax(y @ y, axis=0) @ y)[0]
    big = jax.jit(scores)
    try:
        print(big().shape)
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""


def test_two_slices_are_one_program() -> None:
    done = _run("--tpu v3-8 --slices 2", str(PROGRAMS / "data_parallel.py"), "2", "initialize")
    assert done.returncode == 0, done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if "TPU_" in line)
    assert [line.split()[2:6] for line in lines] == [[str(n), "2", "16", "8"] for n in range(2)]
    assert "slice_id=1" in lines[1]


def test_what_does_not_fit_is_said_at_once_and_refused_under_strict() -> None:
    told = _run("--tpu v2-8 --dry-run", *_code(LARGE))
    assert told.stdout == "(36000,)\n", told.stderr
    assert (
        "does not fit on v2-8: " in told.stderr.splitlines()[0]
        and "the largest buffers are" in told.stderr
    )
    refused = _run("--tpu v2-8 --strict", *_code(LARGE))
    assert refused.stdout.startswith(
        "JaxRuntimeError RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of"
    )


def test_a_worker_that_fails_ends_the_others_and_its_traceback_is_first() -> None:
    done = _run("--tpu v3-32", *_code("""
        import os, time
        if os.environ["TPU_WORKER_ID"] == "2":
            raise ValueError("worker 2 has no data")
        time.sleep(60)
    """))  # fmt: skip
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "[worker 2] Traceback (most recent call last):"
    assert "[worker 2] ValueError: worker 2 has no data" in lines
    assert "podyard run: worker 2 ended with exit code 1; the others were ended" in lines


def test_a_worker_that_fails_among_others_does_not_wait_for_them() -> None:
    done = _run("--tpu v3-32", *_code("""
        import jax, time
        jax.distributed.initialize()
        jax.devices()
        if jax.process_index() == 2:
            raise ValueError("worker 2 has no data")
        time.sleep(2 * 300)  # JAX waits half as long at the end of a process
    """))  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "[worker 2] ValueError: worker 2 has no data" in done.stderr.splitlines()
    assert "podyard run: worker 2 ended with exit code 1; the others were ended" in done.stderr


def test_a_program_can_be_run_as_on_a_plain_machine() -> None:
    done = _run("--tpu v3-8", *_code("""
        import os, subprocess, sys
        code = "import jax; print(jax.default_backend())"
        for changes in ({"PODYARD_TPU": "off"}, {"JAX_PLATFORMS": "cpu"}, {}):
            subprocess.run([sys.executable, "-c", code], env=os.environ | changes, check=True)
    """))  # fmt: skip
    assert done.stdout.split() == ["cpu", "cpu", "tpu"], done.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--tpu v3-9", "accelerator type 'v3-9' does not exist; the nearest that do are v3-8"),
        ("--tpu v3-2048", "v3-2048 has 256 hosts, and this machine can carry about"),
        ("--tpu v3-32 --workers 3", "--workers 3: use 4, one for each host, or 1 for v3-32"),
        ("--dry-run", "--dry-run can only be used with --tpu"),
        ("--tpu v3-8,v2-8", "--tpu with several types can only be used with --dry-run"),
    ],
)
def test_what_cannot_run_is_refused_in_words(options: str, why: str) -> None:
    done = _run(options, "-c", "print('ran')")
    assert done.returncode != 0 and done.stdout == ""
    assert why in done.stderr


def test_options_of_the_program_are_the_program_s() -> None:
    code = "import sys; print(sys.argv[1:])"
    words = [sys.executable, "-c", code, "--steps", "7", "--tpu", "x", "--zone", "z"]
    done = subprocess.run(
        [*PODYARD, "run", "--tpu", "v3-8", *words], env=_environ(), capture_output=True, text=True
    )
    assert done.stdout == "['--steps', '7', '--tpu', 'x', '--zone', 'z']\n", done.stderr


def test_one_process_can_have_all_devices_of_the_slice() -> None:
    done = _run("--tpu v3-32 --workers 1", str(PROGRAMS / "data_parallel.py"), "2")
    assert done.stdout.split()[:4] == ["0", "1", "32", "32"], done.stderr


def test_kernels_of_pallas_are_interpreted_and_a_line_says_so() -> None:
    done = _run("--tpu v5litepod-1", *_code("""
        import jax, jax.numpy as jnp
        from jax.experimental import pallas as pl
        def kernel(x, y, out):
            out[...] = x[...] * y[...]
        x = jnp.arange(1024.0).reshape(8, 128)
        print(pl.pallas_call(kernel, out_shape=x)(x, x).sum() == (x * x).sum())
    """))  # fmt: skip
    assert done.stdout == "True\n", done.stderr
    assert done.stderr.count("Pallas kernels run in JAX's interpreter") == 1


def test_a_python_is_tested_for_what_it_shows() -> None:
    done = subprocess.run(
        [*PODYARD, "tpu", "devices"],
        env=_environ(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [
        [part, "ok"] for part in ("devices", "sums", "numerics", "memory")
    ]
    other = subprocess.run(
        [*PODYARD, "tpu", "devices", "--python", "/bin/false"], env=_environ(), capture_output=True,
        text=True,
        timeout=SECONDS,
    )  # fmt: skip
    assert (
        other.returncode == 1
        and "/bin/false did not run the test: it printed nothing" in other.stderr
    )


def test_a_notebook_gets_devices_and_a_report(tmp_path: Path) -> None:
    notebook = tmp_path / "cells.py"
    notebook.write_text(
        textwrap.dedent("""
        class IPython:
            magics = {}
            def register_magic_function(self, function, kind):
                self.magics[function.__name__] = function
        import podyard
        ipython = IPython()
        podyard.load_ipython_extension(ipython)  # %load_ext podyard
        import jax, jax.numpy as jnp
        print(jax.devices()[0].device_kind, jax.device_count())
        twice = jax.jit(lambda x: x @ x)
        for _ in range(3):
            twice(jnp.ones((64, 64)))
        ipython.magics["tpu_report"]("")
    """)
    )
    done = subprocess.run(
        [sys.executable, str(notebook)],
        env=_environ(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("TPU v2 8\n")
    assert "step jit__lambda: " in done.stdout and "fits (" in done.stdout
