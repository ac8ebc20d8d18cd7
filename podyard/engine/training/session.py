"""The life of one replica process: load, meet the gang, train with evaluations and checkpoints,
report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import numpy as np

from podyard.base.clock import RealClock
from podyard.base.errors import Code, PodyardError, failed_precondition
from podyard.base.training_settings import USUAL_TRAINING
from podyard.engine.collectives.sums import HostSum
from podyard.engine.contract import Ended, MetricsSink, Rendezvous, ReplicaSpec
from podyard.engine.training import checkpoint, export, xla
from podyard.engine.training.checkpoint import Loaded
from podyard.engine.training.gang import join_gang
from podyard.engine.training.judge import Judge, judging
from podyard.engine.training.model_of_job import estimate_of, model_of_job
from podyard.engine.training.programs import LOSS, TrainState, layouts_of, predict
from podyard.engine.training.recipe import Input
from podyard.engine.training.record import RunRecord
from podyard.engine.training.runtime import SliceShape, StepResult, Trainer
from podyard.engine.training.settings import MEASURED_PREFIX
from podyard.engine.training.store import CheckpointStore

ACCURACY = "accuracy"


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
        self._run = checkpoint.RunIdentity(spec.recipe, dict(spec.arguments), spec.seed)
        self._model, self._source = model_of_job(spec)
        self._layouts = layouts_of(self._model, spec.seed)
        # Host 0's process speaks for the gang and writes its checkpoints.
        self._leads = 0 in spec.host_indices

    def run(self, resume: int | None, source: CheckpointStore) -> Ended:
        try:
            return self._run_mode(resume, source)
        except PodyardError as error:
            # Told to stop while waiting for a peer: that is the end that was asked for.
            if error.code is not Code.CANCELLED:
                raise
            self._metrics.log("stopped while waiting for a peer")
            return Ended.STOPPED

    def _run_mode(self, resume: int | None, source: CheckpointStore) -> Ended:
        if self._spec.mode != "train" and resume is None:
            raise failed_precondition(f"mode {self._spec.mode} needs a checkpoint to start from")
        first = self._first(resume, source)
        data = self._model.input()
        judge = Judge(self._model, self._layouts, data, self._spec.host_count)
        if self._spec.mode == "train":
            return self._train(first, data, judge)
        with self._join_gang(first, judge.length) as host_sum:
            if self._metrics.stopping():
                return Ended.STOPPED
            self._answer(first.state, data, judge, host_sum)
        return Ended.FINISHED

    def _first(self, resume: int | None, source: CheckpointStore) -> Loaded:
        if resume is None:
            optimizer = self._model.optimizer(self._spec.global_batch)
            return Loaded(
                "init", self._layouts.start(self._model, self._spec.seed, optimizer), RunRecord()
            )
        loaded = checkpoint.load_newest(
            source, self._run, self._layouts, self._metrics.log, not_after=resume
        )
        if loaded is None:
            raise PodyardError(
                Code.DATA_LOSS, f"no whole checkpoint to resume from at or before step {resume}"
            )
        self._metrics.log(f"resuming from step {loaded.state.step}")
        return loaded

    def _join_gang(self, first: Loaded, length: int) -> AbstractContextManager[HostSum]:
        start = f"{first.sha256} {self._source}"
        return join_gang(
            self._spec, self._rendezvous, start, length, self._bind_address, self._metrics.stopping
        )

    def _train(self, first: Loaded, data: Input, judge: Judge) -> Ended:
        spec = self._spec
        began = self._clock.monotonic_seconds()
        trainer = Trainer(
            self._model,
            self._layouts,
            data,
            SliceShape(spec.host_count, spec.core_count),
            spec.global_batch,
            spec.seed,
            first.state,
            spec.compilation_cache,
            accumulation_steps=spec.training.accumulation_steps,
            learning_rate_scale=spec.learning_rate_scale,
        )
        # Who does not report has no use for it.
        estimate = estimate_of(spec, self._model, self._layouts, data) if self._leads else None
        self._metrics.log(f"compiled in {self._clock.monotonic_seconds() - began:.2f} s")
        with self._join_gang(first, max(trainer.length, judge.length)) as host_sum:
            self._metrics.log(f"gradients are summed {host_sum.how}")
            training = _Training(
                self._spec, self._metrics, self._clock, trainer, host_sum, judge, first.record
            )
            ended = training.run(0.0 if estimate is None else estimate.modelled_seconds, self._save)
            if ended is Ended.FINISHED:
                measured = training.evaluation()
                if self._leads:
                    self._report_end(training, data, measured)
            elif ended is Ended.YIELDED and self._leads:
                self._save(trainer, training.record, training.last)
        return ended

    def _save(
        self,
        trainer: Trainer,
        record: RunRecord,
        last: Mapping[str, float],
        *,
        is_last: bool = False,
    ) -> None:
        state, settings = trainer.train_state, self._spec.training
        told = {
            LOSS: 0.0,
            ACCURACY: 0.0,
            **last,
            **record.measured,
            "epoch": trainer.epoch,
            "step": state.step,
        }
        pattern = settings.checkpoint_name
        if settings.evaluate_every_steps and not record.measured:
            # A gang that yields before its first evaluation: there is nothing measured to tell yet.
            pattern = USUAL_TRAINING.checkpoint_name
        try:
            name = pattern.format(**told)
        except KeyError as error:
            text = f"the name of checkpoints tells {error}, and there is only {', '.join(told)}"
            raise failed_precondition(text) from error
        saved = checkpoint.save(self._store, self._run, self._layouts, state, record, name)
        self._metrics.checkpoint(state.step, saved.name, saved.sha256, record.is_best(state.step))
        if is_last:
            # No later save would take away what stays now because nobody has heard of newer ones.
            self._metrics.report_now()
        gone = checkpoint.prune(
            self._store,
            state.step,
            settings.keep_checkpoints,
            record.best.step,
            self._metrics.resumable_step(),
        )
        if gone:
            self._metrics.on_prune(gone)

    def _report_end(self, training: _Training, data: Input, measured: Mapping[str, float]) -> None:
        trainer = training.trainer
        self._save(trainer, training.record, training.last, is_last=True)
        digest = checkpoint.params_sha256(checkpoint.params_of(self._layouts, trainer.train_state))
        self._metrics.log(f"paramsSha256 {digest}")
        self._log_measured(measured, data)
        if self._spec.training.export_at_end:
            self._export(trainer.train_state, data)
        why = training.record.why_stop(self._spec.training)
        early = (
            {}
            if why is None or trainer.train_state.step >= self._spec.steps
            else {"stopReason": why}
        )
        self._metrics.on_end({**training.last, **_of_test(measured), **early})

    def _answer(self, state: TrainState, data: Input, judge: Judge, host_sum: HostSum) -> None:
        """What the modes that do not train are for. Prediction and export are host 0's alone."""
        measured = _measure(judge, state, host_sum, self._spec.host_indices)
        if not self._leads:
            return
        self._metrics.on_evaluation(
            state.step, {MEASURED_PREFIX + name: value for name, value in measured.items()}
        )
        self._log_measured(measured, data)
        if self._spec.mode == "predict":
            answers = predict(self._model, self._layouts, state, judging(data)).tolist()
            name = f"predictions-{state.step:08d}.json"
            self._store.put(name, json.dumps({"step": state.step, "predictions": answers}).encode())
            self._metrics.log(f"wrote {len(answers)} predictions to {name}")
        elif self._spec.mode == "export":
            self._export(state, data)
        self._metrics.on_end(_of_test(measured))

    def _export(self, state: TrainState, data: Input) -> None:
        example = next(iter(judging(data)))
        about = {
            "recipe": self._run.recipe,
            "arguments": dict(self._run.arguments),
            "seed": self._run.seed,
        }
        names = export.write(self._store, self._model, self._layouts, state, example, about)
        self._metrics.log(f"exported {', '.join(names)}")

    def _log_measured(self, measured: Mapping[str, float], data: Input) -> None:
        told = ", ".join(f"{name} {value:.4f}" for name, value in sorted(measured.items()))
        self._metrics.log(f"test {told} over {data.test.count} held-out examples")


class _Training:
    """The loops of one process, with what comes between them. All processes of a gang decide alike,
    because they decide by the same sums."""

    def __init__(
        self,
        spec: ReplicaSpec,
        metrics: MetricsSink,
        clock: RealClock,
        trainer: Trainer,
        host_sum: HostSum,
        judge: Judge,
        record: RunRecord,
    ) -> None:
        self.trainer = trainer
        self.record = record
        self.last: Mapping[str, float] = {}
        self._spec = spec
        self._metrics = metrics
        self._clock = clock
        self._host_sum = host_sum
        self._judge = judge
        self._leads = 0 in spec.host_indices

    def run(
        self,
        modelled_seconds: float,
        save: Callable[[Trainer, RunRecord, Mapping[str, float]], None],
    ) -> Ended:
        """`modelled_seconds`: of a step, to be reported."""
        spec, trainer = self._spec, self.trainer
        if self._is_done():
            return Ended.FINISHED
        before = self._clock.monotonic_seconds()
        loops = trainer.run(
            spec.steps,
            spec.host_indices,
            self._host_sum,
            xla.thread_count(spec.process_count),
            self._metrics.stopping,
            spec.training.iterations_per_loop,
            self._metrics.yielding,
        )
        for results in loops:
            now = self._clock.monotonic_seconds()
            self.last = results[-1].metrics
            if self._leads:
                self._report(results, (now - before) / len(results), modelled_seconds)
            before = now
            step = trainer.train_state.step
            if (
                spec.training.evaluate_every_steps
                and step % spec.training.evaluate_every_steps == 0
            ):
                self._evaluate()
            if self._is_done():
                return Ended.FINISHED
            due = spec.checkpoint_every_steps and step % spec.checkpoint_every_steps == 0
            if self._leads and not trainer.is_leaving and (due or self.record.is_best(step)):
                save(trainer, self.record, self.last)
        step = trainer.train_state.step
        self._metrics.log(f"{'yielded' if trainer.is_leaving else 'stopped'} after step {step}")
        return Ended.YIELDED if trainer.is_leaving else Ended.STOPPED

    def evaluation(self) -> Mapping[str, float]:
        """Return what was measured after the last step, by the model's own names."""
        if self.record.measured_step != self.trainer.train_state.step or not self.record.measured:
            self._evaluate()
        return {
            name.removeprefix(MEASURED_PREFIX): value
            for name, value in self.record.measured.items()
        }

    def _is_done(self) -> bool:
        reached = self.trainer.train_state.step >= self._spec.steps
        return reached or self.record.why_stop(self._spec.training) is not None

    def _evaluate(self) -> None:
        state = self.trainer.train_state
        metrics = _measure(self._judge, state, self._host_sum, self._spec.host_indices)
        self.record = self.record.after(metrics, state.step, self._spec.training)
        if self._leads:
            self._metrics.on_evaluation(state.step, self.record.measured)

    def _report(
        self, results: list[StepResult], wall_seconds: float, modelled_seconds: float
    ) -> None:
        for result in results:
            accuracy = result.metrics.get(ACCURACY, 0.0)
            self._metrics.step(
                result.step, result.metrics[LOSS], accuracy, wall_seconds, modelled_seconds
            )


def _measure(
    judge: Judge, state: TrainState, host_sum: HostSum, hosts: tuple[int, ...]
) -> dict[str, float]:
    for host in hosts:
        # Before the vector is written to: what comes before in `state` may still be read from there
        # until it is needed.
        sums = judge.sums(state, host)
        vector = host_sum.vector(host)
        vector[: judge.length], vector[judge.length :] = sums, np.float32(0)
    return judge.metrics(host_sum.all_reduce())


def _of_test(metrics: Mapping[str, float]) -> dict[str, float]:
    """ "loss" -> "testLoss"."""
    return {"test" + name[:1].upper() + name[1:]: value for name, value in metrics.items()}
