"""TensorFlow's cluster resolver, and the client library that it has a copy of: as their users call
them."""

from __future__ import annotations

import os
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from answer import answer, error_of


def _resolver(node: str, **options: Any) -> Any:
    import tensorflow

    return tensorflow.distribute.cluster_resolver.TPUClusterResolver(tpu=node, **options)


def _credentials() -> Any:
    from google.oauth2.credentials import Credentials

    return Credentials(os.environ["PODYARD_TOKEN"])


def found_by_itself(node: str) -> Any:
    """Project, zone and credentials from the metadata server."""
    resolver = _resolver(node)
    return {"workers": resolver.cluster_spec().as_dict()["worker"], "master": resolver.master()}


def told(node: str, zone: str, discovery_url: str) -> Any:
    """Everything in arguments: with the variable unset, `discovery_url` alone names the server."""
    del os.environ["TPU_API_DISCOVERY_URL"]
    options = {
        "zone": zone,
        "project": "demo",
        "credentials": _credentials(),
        "discovery_url": discovery_url,
    }
    resolver = _resolver(
        node, **options, coordinator_name="coordinator", coordinator_address="10.9.9.9:1"
    )
    spec = resolver.cluster_spec().as_dict()
    return {
        "cluster": spec,
        "master": resolver.master(),
        "last": resolver.master("worker", len(spec["worker"]) - 1),
    }


def not_ready(node: str, zone: str) -> Any:
    resolver = _resolver(node, zone=zone, project="demo", credentials=_credentials())
    return [error_of(resolver.cluster_spec), error_of(resolver.master)]


def client_library(node: str, zone: str) -> Any:
    client = _client(node, zone)
    client.wait_for_healthy(timeout_s=1, interval=2)
    return {
        "state": client.state(),
        "health": client.health(),
        "recoverable": client.recoverable(),
        "accelerator": client.accelerator_type(),
        "version": client.runtime_version(),
        "endpoints": client.network_endpoints(),
    }


def client_library_preempted(node: str, zone: str) -> Any:
    client = _client(node, zone)
    endpoints, waited = (
        error_of(client.network_endpoints),
        error_of(lambda: client.wait_for_healthy(1, 2)),
    )
    missing = error_of(_client("none", zone).state)
    return [client.state(), client.recoverable(), endpoints, waited, missing]


def _client(node: str, zone: str) -> Any:
    from absl import flags
    from cloud_tpu_client import Client

    flags.FLAGS(["program"])  # `recoverable` reads flags, which its users have parsed
    return Client(tpu=node, zone=zone, project="demo", credentials=_credentials())


answer(found_by_itself, told, not_ready, client_library, client_library_preempted)
