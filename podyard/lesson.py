"""Pictures of a TPU for notebooks, such as `lesson.chips("v2", "v3")`. The console shows the same ones.

Each function returns an object that a notebook draws (`_repr_html_`). None needs IPython, JAX or a running Podyard.
"""

from __future__ import annotations

from podyard.engine.lesson.chips import chips as chips
from podyard.engine.lesson.chips import sources as sources

__all__ = ["chips", "sources"]
