"""The curves of a folder, as TensorBoard reads them: {"curves": {tag: [[step, value], ...]}}."""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

found = EventAccumulator(sys.argv[-1], size_guidance={"scalars": 0})
found.Reload()
curves = {tag: [(item.step, item.value) for item in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
print(json.dumps(curves))
