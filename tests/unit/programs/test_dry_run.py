"""Shardings of a dry run are those that JAX gives XLA, and its arrays take no memory."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("jax", reason="a dry run is JAX's")

from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from podyard.programs.jax_dry_run import _MESH_AXIS, _tiles

AXES = {"data": 4, "model": 2, "expert": 3}


def _specs() -> list[tuple[Any, ...]]:
    pieces = [
        None,
        "data",
        "model",
        "expert",
        ("data", "model"),
        ("model", "data"),
        ("expert", "model", "data"),
    ]
    found = []
    for one, other in itertools.product(pieces, repeat=2):
        used = [
            name
            for piece in (one, other)
            if piece
            for name in ((piece,) if isinstance(piece, str) else piece)
        ]
        if len(used) == len(set(used)):
            found.append((one, other))
    return found


@pytest.mark.parametrize("spec", _specs(), ids=str)
def test_pieces_lie_where_jax_has_them(spec: tuple[Any, ...]) -> None:
    mesh = AbstractMesh(tuple(AXES.values()), tuple(AXES))
    wanted = NamedSharding(mesh, P(*spec))._to_xla_hlo_sharding(2)
    names = [
        () if piece is None else (piece,) if isinstance(piece, str) else piece for piece in spec
    ]
    found = _tiles([[(name, "", "") for name in dimension] for dimension in names], AXES, 24)
    assert type(wanted).from_proto(found) == wanted


def test_a_part_of_an_axis_is_cut_out_of_it() -> None:
    # `"data":(1)2` are the first two of four, `"data":(2)2` the rest; together they are the axis.
    halves = _tiles([[("data", "1", "2")], [("data", "2", "2")]], AXES, 24)
    mesh = AbstractMesh((2, 2, 2, 3), ("high", "low", "model", "expert"))
    wanted = NamedSharding(mesh, P("high", "low"))._to_xla_hlo_sharding(2)
    assert type(wanted).from_proto(halves) == wanted


def test_axes_of_a_mesh_are_read_from_its_text() -> None:
    assert dict(_MESH_AXIS.findall('#sdy.mesh<["data"=4, "model"=2]>')) == {
        "data": "4",
        "model": "2",
    }


@pytest.mark.slow
def test_arrays_of_a_dry_run_take_no_memory() -> None:
    code = """
import re, jax, numpy as np
from podyard.programs.jax_dry_run import DryRun
from jax.sharding import SingleDeviceSharding
dry = DryRun(3, None, lambda: None)
aval = jax.core.ShapedArray((1 << 16, 1 << 14), np.dtype("float32"))  # 4 GiB
kept = [dry.make(aval, SingleDeviceSharding(jax.devices()[0])) for _ in range(100)]
print(all(map(dry.is_made, kept)), dry.value(lambda: None, kept[7])[3, 5])
status = open("/proc/self/status").read()  # ru_maxrss would begin with what the parent had
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) < 1 << 20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True", "0.0", "True"], done.stderr


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("pjit", "_run_python_pjit"),
        ("xla_bridge", "_backend_factories"),
        ("dispatch", "_device_put_sharding_impl"),
    ],
)
def test_a_name_that_jax_has_given_up_is_missed(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podyard.programs import jax_internals

    assert jax_internals.missing(dry_run=True) == []
    monkeypatch.delattr(getattr(jax_internals, module), name)
    assert jax_internals.missing(dry_run=True) == [f"jax._src.{module}.{name}"]
