"""jax.distributed as users start it: two slices on one machine at the same time, and a gang that is
killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.jax_slices import Slices
from tests.gcloud import dials_port_22
from tests.stack import open_stack

# With gcloud, the same slices are asked for the same; `podyard tpu ssh` itself is in test_hosts.py.
_AS_GCLOUD = [pytest.mark.long] if dials_port_22() else []


@pytest.mark.slow
@pytest.mark.xdist_group("stack")
@pytest.mark.parametrize("client", [pytest.param("podyard", marks=_AS_GCLOUD), "gcloud"])
def test_two_slices_at_once_each_have_their_own_sum_and_a_killed_gang_starts_again(
    tmp_path: Path, client: str
) -> None:
    if client == "gcloud" and not dials_port_22():
        pytest.skip("gcloud is not installed, or hosts cannot listen on port 22 here")
    with open_stack(tmp_path / "data") as stack:
        slices = Slices(stack, tmp_path, client)
        if client == "podyard":
            slices.at_once("own")  # whatever the client is
        if client == "gcloud" or not dials_port_22():
            slices.at_once("plain")
            slices.killed_and_restarted("left")
