"""The curves of a folder, as TensorBoard reads them: {"curves": {tag: [[step, value], ...]}}."""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

found = EventAccumulator(sys.argv[-1], size_guidance={"scalars": 0, "tensors": 0})
found.Reload()
curves = {
    tag: [(item.step, item.value) for item in found.Scalars(tag)] for tag in found.Tags()["scalars"]
}
# TensorFlow 2 writes scalars as tensors.
for tag in found.Tags()["tensors"]:
    curves[tag] = [
        (item.step, float(make_ndarray(item.tensor_proto))) for item in found.Tensors(tag)
    ]
print(json.dumps(curves))
