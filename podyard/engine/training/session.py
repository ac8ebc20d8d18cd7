"""The life of one replica process: load, meet the gang, train with checkpoints, report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.engine.analysis import analyze
from podyard.engine.collectives.sums import HostSum
from podyard.engine.contract import MetricsSink, Rendezvous, ReplicaSpec
from podyard.engine.recipes import build_recipe
from podyard.engine.recipes.programs import program_of
from podyard.engine.timing.estimate import Estimate
from podyard.engine.training import checkpoint, xla
from podyard.engine.training.gang import met_gang
from podyard.engine.training.input.pipeline import Evaluation
from podyard.engine.training.programs import LOSS, TrainState, evaluate, layouts_of, predict
from podyard.engine.training.recipe import Input
from podyard.engine.training.runtime import SliceShape, Trainer
from podyard.engine.training.store import CheckpointStore

ACCURACY, DATA = "accuracy", "data"
# Examples that are judged in one program: more take memory and no less time.
JUDGED_AT_ONCE_MAX = 1000


class Session:
    """One `run` per object."""

    def __init__(
        self,
        spec: ReplicaSpec,
        rendezvous: Rendezvous,
        metrics: MetricsSink,
        store: CheckpointStore,
        bind_address: str,
        real_clock: RealClock,
    ) -> None:
        xla.configure(spec.compilation_cache)
        self._spec = spec
        self._rendezvous = rendezvous
        self._metrics = metrics
        self._store = store
        self._bind_address = bind_address
        self._clock = real_clock
        self._run = checkpoint.Run(spec.recipe, dict(spec.arguments), spec.seed)
        self._model = build_recipe(spec.recipe, _with_data_found(spec))
        self._layouts = layouts_of(self._model, spec.seed)
        # Host 0's process speaks for the gang and writes its checkpoints.
        self._leads = 0 in spec.host_indices

    def run(self, resume: str | None) -> None:
        try:
            self._run_mode(resume)
        except PodyardError as error:
            # Told to stop while waiting for a peer: that is the end that was asked for.
            if error.code is not Code.CANCELLED:
                raise
            self._metrics.log("stopped while waiting for a peer")

    def _run_mode(self, resume: str | None) -> None:
        state, start = self._first_state(resume)
        data = self._model.input()
        if self._spec.mode == "train":
            self._train(state, start, data)
            return
        if resume is None:
            raise failed_precondition(f"mode {self._spec.mode} needs a checkpoint to start from")
        with self._gang(start, 0):
            # Joined like the others, so that a gang is whole or fenced in every mode; the work is host 0's alone.
            if self._leads and not self._metrics.stopping():
                self._judge(state, data)

    def _first_state(self, resume: str | None) -> tuple[TrainState, str]:
        if resume is None:
            optimizer = self._model.optimizer(self._spec.global_batch)
            return self._layouts.start(self._model, self._spec.seed, optimizer), "init"
        loaded = checkpoint.load_newest(self._store, self._run, self._layouts, self._metrics.log, not_after=resume)
        if loaded is None:
            raise PodyardError(Code.DATA_LOSS, f"no whole checkpoint to resume from at or before {resume}")
        self._metrics.log(f"resuming from {loaded.name} (step {loaded.state.step})")
        return loaded.state, loaded.sha256

    def _train(self, state: TrainState, start: str, data: Input) -> None:
        spec = self._spec
        began = self._clock.monotonic_seconds()
        trainer = Trainer(
            self._model,
            self._layouts,
            data,
            SliceShape(spec.host_count, spec.core_count),
            spec.global_batch,
            spec.seed,
            state,
            spec.compilation_cache,
        )
        estimate = self._estimate()
        self._metrics.log(f"compiled in {self._clock.monotonic_seconds() - began:.2f} s")
        with self._gang(start, trainer.programs.length) as host_sum:
            self._metrics.log(f"gradients are summed {host_sum.how}")
            finished = self._steps(trainer, host_sum, estimate)
        if finished is not None and self._leads:
            self._report_end(trainer.train_state, data, finished)

    def _gang(self, start: str, length: int) -> AbstractContextManager[HostSum]:
        return met_gang(self._spec, self._rendezvous, start, length, self._bind_address, self._metrics.stopping)

    def _steps(self, trainer: Trainer, host_sum: HostSum, estimate: Estimate) -> dict[str, float] | None:
        """The last step's metrics, none when no step was taken; None when told to stop."""
        spec = self._spec
        thread_count = max(1, xla.available_cpu_count() // spec.process_count)
        last: dict[str, float] = {}
        before = self._clock.monotonic_seconds()
        for result in trainer.run(spec.steps, spec.host_indices, host_sum, thread_count, self._metrics.stopping):
            now = self._clock.monotonic_seconds()
            last = dict(result.metrics)
            if self._leads:
                loss, accuracy = last[LOSS], last.get(ACCURACY, 0.0)
                self._metrics.step(result.step, loss, accuracy, now - before, estimate.modelled_seconds)
                due = spec.checkpoint_every_steps and result.step % spec.checkpoint_every_steps == 0
                if due and result.step < spec.steps:
                    self._save(trainer.train_state)
            before = now
        if trainer.train_state.step < spec.steps:
            self._metrics.log(f"stopped after step {trainer.train_state.step}")
            return None
        return last

    def _report_end(self, state: TrainState, data: Input, last: dict[str, float]) -> None:
        self._save(state)
        digest = checkpoint.params_sha256(checkpoint.params_of(self._layouts, state))
        self._metrics.log(f"paramsSha256 {digest}")
        judged = evaluate(self._model, self._layouts, state, _judging(data))
        self._log_judged(judged, data)
        self._metrics.finished({**last, **_of_test(judged)})

    def _judge(self, state: TrainState, data: Input) -> None:
        judged = evaluate(self._model, self._layouts, state, _judging(data))
        self._log_judged(judged, data)
        if self._spec.mode == "predict":
            answers = predict(self._model, self._layouts, state, _judging(data)).tolist()
            name = f"predictions-{state.step:08d}.json"
            self._store.put(name, json.dumps({"step": state.step, "predictions": answers}).encode())
            self._metrics.log(f"wrote {len(answers)} predictions to {name}")
        self._metrics.finished(_of_test(judged))

    def _log_judged(self, judged: Mapping[str, float], data: Input) -> None:
        told = ", ".join(f"{name} {value:.4f}" for name, value in sorted(judged.items()))
        self._metrics.log(f"test {told} over {data.test.count} held-out examples")

    def _save(self, state: TrainState) -> None:
        name, sha256 = checkpoint.save(self._store, self._run, self._layouts, state)
        self._metrics.checkpoint(state.step, name, sha256)

    def _estimate(self) -> Estimate:
        """What a step of this recipe would take on the slice: its program as a user writes it, not as it runs here."""
        program = program_of(self._spec.recipe, self._spec.arguments)
        return analyze(
            program.step,
            *program.abstract_arguments(self._spec.global_batch),
            accelerator_type=self._spec.accelerator_type,
            global_batch=self._spec.global_batch,
        )


def _with_data_found(spec: ReplicaSpec) -> dict[str, object]:
    """The arguments, the data's folder as a path. What a checkpoint remembers is the name."""
    data = spec.arguments.get(DATA)
    if spec.data_folder is None or not isinstance(data, str):
        return dict(spec.arguments)
    return {**spec.arguments, DATA: str(Path(spec.data_folder, data))}


def _judging(data: Input) -> Evaluation:
    return Evaluation(data.test, min(data.test.count, JUDGED_AT_ONCE_MAX), data.test_transforms)


def _of_test(metrics: Mapping[str, float]) -> dict[str, float]:
    """ "loss" -> "testLoss"."""
    return {"test" + name[:1].upper() + name[1:]: value for name, value in metrics.items()}
