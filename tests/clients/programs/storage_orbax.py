"""orbax's checkpoints and TensorBoard's readers on gs://, without TensorFlow. Prints one line of
JSON: what each case came to."""

import json
import os
import sys
import tempfile
import traceback

os.environ["JAX_PLATFORMS"] = "cpu"

import gcsfs
import numpy as np
import orbax.checkpoint as ocp
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def checkpoints(root):
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(f"{root}/ckpt", options=options) as manager:
        for step in (1, 2, 3):
            tree = {"w": np.arange(100_000, dtype=np.float32) + step}
            manager.save(step, args=ocp.args.StandardSave(tree))
        manager.wait_until_finished()
        assert list(manager.all_steps()) == [2, 3]
        template = {"w": np.zeros(100_000, np.float32)}
        tree = manager.restore(3, args=ocp.args.StandardRestore(template))
        assert float(np.asarray(tree["w"])[5]) == 8.0


def curves(root):
    with tempfile.TemporaryDirectory() as folder:
        writer = EventFileWriter(folder)
        for step in range(10):
            summary = Summary(value=[Summary.Value(tag="loss", simple_value=1.0 / (step + 1))])
            writer.add_event(Event(step=step, summary=summary))
        writer.close()
        gcsfs.GCSFileSystem().put(
            f"{folder}/", f"{root.removeprefix('gs://')}/logs/", recursive=True
        )
    accumulator = EventAccumulator(f"{root}/logs")
    accumulator.Reload()
    points = [(point.step, point.value) for point in accumulator.Scalars("loss")]
    assert [step for step, _ in points] == list(range(10))
    assert abs(points[3][1] - 0.25) < 1e-6


def main():
    results = {}
    for case in (checkpoints, curves):
        try:
            case(f"gs://{sys.argv[1]}/{case.__name__}")
            results[case.__name__] = "ok"
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            results[case.__name__] = f"{type(error).__name__}: {error}"
    print(json.dumps(results))


main()
