"""The exact verdict: how the worker is handled, whatever it does, and what the real compiler
says."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from podyard.base.errors import Code, PodyardError
from podyard.engine.exact import client
from podyard.engine.exact.client import ExactCompiler, ExactVerdict, compile_exact, lower_for_tpu
from podyard.engine.exact.worker import HEADER, MAGIC
from tests.waiting import patient


def _worker_pid(compiler: ExactCompiler) -> int | None:
    worker = compiler._worker
    return None if worker is None else worker.process.pid


# A worker that does what the module says: the protocol from the other side, without the project's
# code.
_FAKE = r"""
import json, os, signal, struct, subprocess, sys, time

def send(answer):
    body = json.dumps(answer).encode()
    os.write(1, b"PYX1" + struct.pack(">I", len(body)) + body)

def read(size):
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            sys.exit(0)
        data += part
    return data

if sys.argv[1] == "deaf":
    time.sleep(60)
with open(sys.argv[1], "a") as log:
    log.write(f"{os.getpid()}\n")
while True:
    head = read(8)
    order = json.loads(read(struct.unpack(">I", head[4:])[0]))["stablehlo"].split()
    if order[0] == "crash":
        print("something broke", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if order[0] == "leave":
        sys.exit(3)
    if order[0] == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        with open(order[1], "w") as file:
            file.write(str(child.pid))
        time.sleep(60)
    if order[0] == "garbage":
        os.write(1, b"I am not a message, and I go on and on")
        time.sleep(60)
    if order[0] == "half":
        os.write(1, b"PYX1" + struct.pack(">I", 100) + b"{")
        sys.exit(0)
    if order[0] == "sleep":
        time.sleep(float(order[1]))
    if order[0] == "refuse":
        send({"error": {"code": 3, "message": "no such thing"}, "resident_bytes": 1})
    elif order[0] == "senseless":
        send({"verdict": {"cycles": 1, "moons": 2}, "resident_bytes": 1})
    elif order[0] == "unweighed":
        send({"verdict": {}})
    else:
        verdict = {"cycles": os.getpid(), "out_of_memory_text": "", "compiler_version": "fake"}
        send({"verdict": verdict, "resident_bytes": int(order[1]) if order[0] == "fat" else 1000})
"""


@dataclasses.dataclass
class _Compilers:
    """Compilers that share a lock folder and a fake worker; `starts` are the workers' process
    ids."""

    folder: Path
    compilers: list[ExactCompiler]

    def compiler(self, argument: str = "", **limits: float) -> ExactCompiler:
        command = [
            sys.executable,
            "-S",
            "-E",
            str(self.folder / "fake.py"),
            argument or str(self.folder / "starts"),
        ]
        made = ExactCompiler(command, self.folder, **limits)  # type: ignore[arg-type]
        self.compilers.append(made)
        return made

    @property
    def starts(self) -> list[int]:
        log = self.folder / "starts"
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        return [int(line) for line in lines if line.endswith("\n")]


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[_Compilers]:
    (tmp_path / "fake.py").write_text(_FAKE)
    made = _Compilers(tmp_path, [])
    yield made
    for compiler in made.compilers:
        compiler.close()


def _ask(compiler: ExactCompiler, order: str = "go", timeout_seconds: float = 20.0) -> ExactVerdict:
    return compiler.compile(order, "v3-8", 1, timeout_seconds)


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_worker_answers_many_requests(yard: _Compilers) -> None:
    compiler = yard.compiler()
    first, second = _ask(compiler), _ask(compiler)
    assert first.fits and first.accelerator_type == "v3-8"
    assert [first.cycles] == [second.cycles] == yard.starts == [_worker_pid(compiler)]


def test_a_crash_is_an_error_that_says_so_and_the_next_call_has_a_new_worker(
    yard: _Compilers,
) -> None:
    compiler = yard.compiler()
    with pytest.raises(PodyardError, match=r"ended by signal 11.*something broke") as caught:
        _ask(compiler, "crash")
    assert caught.value.code is Code.UNAVAILABLE
    assert not psutil.pid_exists(yard.starts[0])
    assert _ask(compiler).cycles == yard.starts[1]


@pytest.mark.parametrize(
    ("order", "code", "words"),
    [
        ("leave", Code.UNAVAILABLE, "ended with status 3"),
        ("garbage", Code.UNAVAILABLE, "answered nonsense"),
        ("half", Code.UNAVAILABLE, "ends within a message"),
        ("unweighed", Code.UNAVAILABLE, "no resident_bytes"),
        ("senseless", Code.INTERNAL, "without sense.*moons"),
        ("refuse", Code.INVALID_ARGUMENT, "^no such thing$"),
    ],
)
def test_every_bad_answer_is_an_error_and_none_stays(
    yard: _Compilers, order: str, code: Code, words: str
) -> None:
    compiler = yard.compiler()
    began = time.monotonic()
    with pytest.raises(PodyardError, match=words) as caught:
        _ask(compiler, order)
    assert caught.value.code is code
    assert time.monotonic() - began < 15  # the limit is 20
    assert _ask(compiler).fits


@pytest.mark.slow
def test_a_worker_that_hangs_is_killed_at_the_limit_with_all_that_it_started(
    yard: _Compilers,
) -> None:
    compiler = yard.compiler()
    note = yard.folder / "child"
    with pytest.raises(PodyardError, match=r"after 0.6 s.*compiler was working") as caught:
        _ask(compiler, f"hang {note}", 0.6)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    assert _worker_pid(compiler) is None
    assert not psutil.pid_exists(yard.starts[0])  # a zombie would still have its number
    child = int(note.read_text())
    _wait_until(
        lambda: (
            not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
        )
    )
    assert _ask(compiler).fits


def test_a_worker_that_does_not_read_cannot_hold_the_caller(yard: _Compilers) -> None:
    with pytest.raises(PodyardError) as caught:
        _ask(yard.compiler("deaf"), "x" * 8_000_000, 0.5)
    assert caught.value.code is Code.DEADLINE_EXCEEDED


def test_a_worker_that_died_between_two_calls_is_replaced(yard: _Compilers) -> None:
    compiler = yard.compiler()
    _ask(compiler)
    process = psutil.Process(yard.starts[0])
    process.kill()
    _wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
    assert _ask(compiler).cycles == yard.starts[1]


def test_a_worker_is_recycled_after_its_compilations(yard: _Compilers) -> None:
    compiler = yard.compiler(compiles_max=2)
    seen = [_ask(compiler).cycles for _ in range(5)]
    assert seen == [pid for pid in yard.starts for _ in range(2)][:5]
    assert len(set(seen)) == 3


def test_a_worker_that_grew_too_large_is_recycled(yard: _Compilers) -> None:
    compiler = yard.compiler(resident_bytes_max=5000)
    small, large, after = (_ask(compiler, order).cycles for order in ("fat 5000", "fat 5001", "go"))
    assert small == large != after


def test_an_idle_worker_ends(yard: _Compilers) -> None:
    compiler = yard.compiler(idle_seconds=0.1)
    _ask(compiler)
    _wait_until(lambda: _worker_pid(compiler) is None)
    assert not psutil.pid_exists(yard.starts[0])
    assert _ask(compiler).fits


@pytest.mark.slow
def test_two_compilers_of_one_machine_never_have_two_workers(yard: _Compilers) -> None:
    one, two = yard.compiler(), yard.compiler()
    _ask(one)
    began = time.monotonic()
    # an idle worker is given up for the other, long before its idle time is over
    assert _ask(two).fits
    assert time.monotonic() - began < 15
    assert _worker_pid(one) is None and _worker_pid(two) is not None
    seen: list[int] = []

    def ask_often(compiler: ExactCompiler) -> None:
        for _ in range(4):
            _ask(compiler, "sleep 0.05")
            seen.append(sum(psutil.pid_exists(pid) for pid in yard.starts))

    threads = [threading.Thread(target=ask_often, args=(compiler,)) for compiler in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8 and max(seen) <= 1


@pytest.mark.slow
def test_after_a_fork_parent_and_child_each_have_their_own_worker(yard: _Compilers) -> None:
    program = f"""
import os, sys
from podyard.engine.exact import client
compiler = client._shared
compiler._command = {yard.compiler()._command!r}
compiler._lock_folder = client.Path({str(yard.folder)!r})
first = compiler.compile("go", "v3-8").cycles
child = os.fork()
second = compiler.compile("go", "v3-8").cycles
if child == 0:
    os._exit(0 if second != first else 1)
sys.exit(os.waitpid(child, 0)[1] != 0)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=patient(20),
    )
    assert (done.returncode, done.stderr) == (0, "")
    _wait_until(lambda: not any(psutil.pid_exists(pid) for pid in yard.starts))


def test_closing_ends_a_compilation_that_is_under_way(yard: _Compilers) -> None:
    compiler = yard.compiler()
    errors: list[str] = []

    def ask() -> None:
        try:
            _ask(compiler, "sleep 20")
        except PodyardError as error:
            errors.append(error.message)

    busy = threading.Thread(target=ask)
    busy.start()
    _wait_until(
        lambda: _worker_pid(compiler) is not None and yard.starts == [_worker_pid(compiler)]
    )
    compiler.close()
    busy.join(5)
    assert len(errors) == 1 and "ended by signal 9" in errors[0]
    assert not psutil.pid_exists(yard.starts[0])


def test_a_forgotten_worker_loses_its_input_and_ends(yard: _Compilers) -> None:
    compiler = yard.compiler()
    pid = _ask(compiler).cycles
    compiler.forget()
    _wait_until(lambda: os.waitpid(pid, os.WNOHANG) == (pid, 0))


def test_a_worker_is_given_up_after_its_compilation_where_another_process_waits(
    yard: _Compilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_WATCH_SECONDS", 30.0)
    one, two = yard.compiler(), yard.compiler()
    busy = threading.Thread(target=_ask, args=(one, "sleep 0.4"))
    busy.start()
    _wait_until(lambda: len(yard.starts) == 1)
    assert _ask(two, "go", 5.0).fits
    busy.join()
    assert _worker_pid(one) is None


@pytest.mark.slow
def test_waiting_for_another_process_has_an_end(yard: _Compilers) -> None:
    one, two = yard.compiler(), yard.compiler()
    busy = threading.Thread(target=_ask, args=(one, "sleep 0.8"))
    busy.start()
    _wait_until(lambda: len(yard.starts) == 1)
    with pytest.raises(PodyardError, match="another process used") as caught:
        _ask(two, "go", 0.3)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    busy.join()


@pytest.mark.slow
def test_waiting_for_another_thread_has_an_end(yard: _Compilers) -> None:
    compiler = yard.compiler()
    busy = threading.Thread(target=_ask, args=(compiler, "sleep 0.6"))
    busy.start()
    _wait_until(lambda: len(yard.starts) == 1)
    with pytest.raises(PodyardError, match="another thread"):
        _ask(compiler, "go", 0.2)
    busy.join()


def test_more_partitions_than_devices_are_refused_before_anything_starts(yard: _Compilers) -> None:
    compiler = yard.compiler()
    for partitions in (0, 9):
        with pytest.raises(PodyardError, match="v3-8 has 8 devices"):
            compiler.compile("go", "v3-8", partitions)
    assert _worker_pid(compiler) is None


def test_a_folder_of_locks_that_others_can_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / f"podyard-exact-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PodyardError, match="not a private folder"):
        ExactCompiler([sys.executable, "-c", ""]).compile("go", "v3-8")


def test_without_the_compiler_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "is_installed", lambda: False)
    with pytest.raises(PodyardError, match=r"needs pip install 'podyard\[xla-tpu\]'") as caught:
        compile_exact("module {}", "v3-8")
    assert caught.value.code is Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("sent", "status"), [(b"", 0), (b"GET / HTTP/1.1\r\n\r\n", 2), (HEADER.pack(MAGIC, 9), 2)]
)
def test_the_worker_ends_with_its_input_and_at_nonsense(sent: bytes, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "podyard.engine.exact.worker"],
        input=sent,
        capture_output=True,
        timeout=patient(20),
    )
    assert (done.returncode, done.stdout) == (status, b"")


def test_a_function_is_lowered_for_a_tpu_where_there_is_none() -> None:
    pytest.importorskip("jax")
    text = lower_for_tpu(*_product(64))
    assert "stablehlo.dot_general" in text and "tensor<64x64xbf16>" in text


def _product(size: int) -> tuple[Callable[..., object], object, object]:
    import jax
    import jax.numpy as jnp

    operand = jax.ShapeDtypeStruct((size, size), jnp.bfloat16)
    return (lambda a, b: a @ b), operand, operand


@pytest.fixture(scope="module")
def real() -> Iterator[ExactCompiler]:
    """The real compiler."""
    if not client.is_installed():
        pytest.skip("libtpu is not installed")
    compiler = ExactCompiler()
    yield compiler
    compiler.close()


@pytest.mark.parametrize(("size", "cycles"), [(64, 1152), (128, 1371)])
def test_the_compiler_counts_a_matrix_product(real: ExactCompiler, size: int, cycles: int) -> None:
    verdict = real.compile(lower_for_tpu(*_product(size)), "v3-8")
    assert (verdict.cycles, verdict.fits) == (cycles, True)
    assert [(op.kind, op.cycles, op.count) for op in verdict.ops] == [("fusion", cycles, 1)]
    assert verdict.flops == 2 * size**3
    assert verdict.compiler_version.startswith("libtpu ")


def test_the_compiler_loops_as_often_as_the_source(real: ExactCompiler) -> None:
    import jax
    import jax.numpy as jnp

    def nested(x: jax.Array) -> jax.Array:
        inner = lambda _, y: jnp.tanh(y @ x)  # noqa: E731
        return jax.lax.fori_loop(0, 5, lambda _, y: jax.lax.fori_loop(0, 3, inner, y) + 1, x)

    text = lower_for_tpu(nested, jax.ShapeDtypeStruct((128, 128), jnp.bfloat16))
    for kind in ("v3-8", "v5litepod-1"):
        verdict = real.compile(text, kind)
        assert verdict.unknown_trip_loops == ()
        assert max(verdict.ops, key=lambda op: op.cycles or 0).count == 15


def test_a_program_that_is_too_large_does_not_fit_and_the_compiler_says_why(
    real: ExactCompiler,
) -> None:
    import jax
    import jax.numpy as jnp

    # Sorting needs the whole product, 57,344 x 57,344 numbers of two bytes, at once, and three
    # times.
    text = lower_for_tpu(
        lambda x: jnp.sort(x @ x.T, axis=0)[0], jax.ShapeDtypeStruct((57_344, 64), jnp.bfloat16)
    )
    verdict = real.compile(text, "v2-8")
    assert not verdict.fits
    assert "Ran out of memory on HBM" in verdict.out_of_memory_text
    assert "(18.38G) exceeds available HBM (7.48G)" in verdict.out_of_memory_text


def _sum_over(count: int) -> str:
    import jax
    import jax.numpy as jnp
    from jax.sharding import AbstractMesh, PartitionSpec

    split = PartitionSpec("x")
    mesh = AbstractMesh((count,), ("x",))
    whole = jax.shard_map(
        lambda a: jax.lax.psum(a, "x"), mesh=mesh, in_specs=split, out_specs=PartitionSpec()
    )
    return lower_for_tpu(whole, jax.ShapeDtypeStruct((count, 1024, 256), jnp.float32))


@pytest.mark.parametrize(
    ("kind", "count", "strategy", "colors", "phases"),
    [
        ("v3-8", 8, "UniDirectionNDRingStrategy", 4, 2),
        ("v4-256", 128, "UniDirectionNDRingStrategy", 6, 3),
    ],
)
def test_the_compiler_lays_an_all_reduce_over_the_slice(
    real: ExactCompiler, kind: str, count: int, strategy: str, colors: int, phases: int
) -> None:
    (found,) = real.compile(_sum_over(count), kind, count).collectives
    assert (found.kind, found.strategy, found.colors, found.phases) == (
        "all-reduce",
        strategy,
        colors,
        phases,
    )


def test_what_the_compiler_refuses_comes_back_in_its_words(real: ExactCompiler) -> None:
    with pytest.raises(PodyardError, match="not a StableHLO module"):
        real.compile("module {", "v3-8")
    with pytest.raises(PodyardError, match="No such compile option"):
        real.compile(lower_for_tpu(*_product(64)), "v3-8", options={"xla_tpu_unheard_of": 1})
    assert real.compile(lower_for_tpu(*_product(64)), "v3-8").cycles == 1152


def test_the_shared_compiler_leaves_nothing_behind() -> None:
    if not client.is_installed():
        pytest.skip("libtpu is not installed")
    program = (
        "from podyard.engine.exact import client\n"
        f"print(client.compile_exact({lower_for_tpu(*_product(8))!r}, 'v5litepod-4').fits)\n"
        "print(client._shared._worker.process.pid)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=True,
    )
    fits, pid = done.stdout.split()
    assert fits == "True" and not psutil.pid_exists(int(pid))
