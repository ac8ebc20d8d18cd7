"""A launcher that keeps so many TPU nodes alive, and its test: `pytest examples/launcher_test.py`.

Needs podyard (`pip install CLONE`, the folder of your clone), google-cloud-tpu and pytest. The fixture `podyard` comes
with the package.
"""

from __future__ import annotations

import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.oauth2.credentials import Credentials

GONE = (tpu_v2.Node.State.PREEMPTED, tpu_v2.Node.State.TERMINATED)


class Launcher:
    """Looks after the nodes whose names begin with `name`. Each call of `look` brings them nearer to `count`."""

    def __init__(self, client: tpu_v2.TpuClient, parent: str, name: str, kind: str, count: int) -> None:
        self.client = client
        self.parent = parent
        self.name = name
        self.kind = kind
        self.count = count
        self.made = 0

    def look(self) -> int:
        """Deletes what was taken back, creates what is missing; returns how many are READY afterwards."""
        ready = 0
        for node in self.client.list_nodes(parent=self.parent):
            if node.state in GONE:
                self.client.delete_node(name=node.name).result()
            elif node.state == tpu_v2.Node.State.READY:
                ready += 1
        while ready < self.count:
            self.made += 1
            node = tpu_v2.Node(
                accelerator_type=self.kind,
                runtime_version="tpu-vm-base",
                scheduling_config=tpu_v2.SchedulingConfig(spot=True),
            )
            try:
                self.client.create_node(parent=self.parent, node_id=f"{self.name}-{self.made}", node=node).result()
            except GoogleAPICallError:
                break  # no capacity at the moment: the next look tries again
            ready += 1
        return ready


def client_of(url: str, token: str) -> tpu_v2.TpuClient:
    credentials = Credentials(token) if token else AnonymousCredentials()
    return tpu_v2.TpuClient(credentials=credentials, transport="rest", client_options={"api_endpoint": url})


@pytest.fixture
def launcher(podyard):
    parent = f"projects/{podyard.project}/locations/{podyard.location}"
    return Launcher(client_of(podyard.url, podyard.token), parent, "worker", "v2-8", 3)


def test_it_starts_as_many_as_it_shall(launcher):
    assert launcher.look() == 3


def test_it_replaces_what_is_preempted(podyard, launcher):
    launcher.look()
    podyard.advance("5h")
    podyard.preempt("worker-2")
    assert launcher.look() == 3
    names = {node.name.rsplit("/", 1)[1] for node in launcher.client.list_nodes(parent=launcher.parent)}
    assert names == {"worker-1", "worker-3", "worker-4"}


def test_it_outlives_a_stockout(podyard, launcher):
    podyard.fault("stockout", zone=podyard.location, until="1h")
    assert launcher.look() == 0
    podyard.advance("2h")
    assert launcher.look() == 3
