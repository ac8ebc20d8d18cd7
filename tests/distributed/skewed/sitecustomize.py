"""On the PYTHONPATH of a machine whose clock is wrong: Python's wall clock is off by
PODYARD_TEST_SKEW_SECONDS. The monotonic clock is not, as on a real machine."""

import os
import time

_SECONDS = float(os.environ.get("PODYARD_TEST_SKEW_SECONDS", "0"))
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _SECONDS
time.time_ns = lambda: _time_ns() + int(_SECONDS * 1_000_000_000)
