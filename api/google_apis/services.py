"""Service Usage: what Podyard serves is enabled in every project, and all else cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from podyard.api.google_apis.call import ApiCall
from podyard.api.google_apis.terms import matches
from podyard.base.errors import (
    Code,
    ErrorInfo,
    PodyardError,
    failed_precondition,
    invalid,
    not_found,
)
from podyard.control.access import identity

# Google's name of the operation that had nothing to do.
DONE = "operations/noop.DONE_OPERATION"
BATCH_MAX = 20  # Google's limit
ENABLED = {
    "cloudapis.googleapis.com": "Google Cloud APIs",
    "cloudbilling.googleapis.com": "Cloud Billing API",
    "cloudresourcemanager.googleapis.com": "Cloud Resource Manager API",
    "compute.googleapis.com": "Compute Engine API",
    "iam.googleapis.com": "Identity and Access Management (IAM) API",
    "logging.googleapis.com": "Cloud Logging API",
    "monitoring.googleapis.com": "Cloud Monitoring API",
    "serviceusage.googleapis.com": "Service Usage API",
    "storage-api.googleapis.com": "Google Cloud Storage JSON API",
    "storage-component.googleapis.com": "Cloud Storage",
    "storage.googleapis.com": "Cloud Storage API",
    "tpu.googleapis.com": "Cloud TPU API",
}
# What launchers ask for and Podyard has no answer for.
DISABLED = {
    "artifactregistry.googleapis.com": "Artifact Registry API",
    "bigquery.googleapis.com": "BigQuery API",
    "container.googleapis.com": "Kubernetes Engine API",
    "file.googleapis.com": "Cloud Filestore API",
    "iamcredentials.googleapis.com": "IAM Service Account Credentials API",
    "iap.googleapis.com": "Cloud Identity-Aware Proxy API",
    "networkconnectivity.googleapis.com": "Network Connectivity API",
    "oslogin.googleapis.com": "Cloud OS Login API",
    "pubsub.googleapis.com": "Cloud Pub/Sub API",
    "secretmanager.googleapis.com": "Secret Manager API",
}
_TITLES = ENABLED | DISABLED
_TYPE = "type.googleapis.com/google.api.serviceusage.v1."


def get(call: ApiCall) -> dict[str, Any]:
    return _message(_number(call), _service(call.resource.rpartition("/")[2]))


def list_services(call: ApiCall) -> dict[str, Any]:
    number, text = _number(call), call.value("filter")
    names = [
        name
        for name in sorted(_TITLES)
        if matches(text, {"state": _state(name), "name": name, "config.name": name})
    ]
    page, token = call.page(names, lambda name: name)
    answer: dict[str, Any] = {"services": [_message(number, name) for name in page]}
    return answer | ({"nextPageToken": token} if token else {})


def batch_get(call: ApiCall) -> dict[str, Any]:
    number = _number(call)
    names = [name.rpartition("/")[2] for name in call.query.get("names", ())]
    return {"services": [_message(number, _service(name)) for name in _some(names, "names")]}


def enable(call: ApiCall) -> dict[str, Any]:
    number = _number(call)
    name = _require_served([call.resource.rpartition("/")[2]])[0]
    kind = f"{_TYPE}EnableServiceResponse"
    return _operation({"@type": kind, "service": _message(number, name)})


def batch_enable(call: ApiCall) -> dict[str, Any]:
    number = _number(call)
    names = _require_served(_some(call.body.get("serviceIds", ()), "serviceIds"))
    shown = [_message(number, name) for name in names]
    return _operation({"@type": f"{_TYPE}BatchEnableServicesResponse", "services": shown})


def disable(call: ApiCall) -> dict[str, Any]:
    name = _service(call.resource.rpartition("/")[2])
    if name in ENABLED:
        raise failed_precondition(f"{name} cannot be disabled: Podyard serves it in every project")
    number = _number(call)
    kind = f"{_TYPE}DisableServiceResponse"
    return _operation({"@type": kind, "service": _message(number, name)})


def get_operation(call: ApiCall) -> dict[str, Any]:
    if call.resource != DONE:
        raise not_found(call.resource)
    return {"name": DONE, "done": True}


def _some(names: Sequence[str], field: str) -> Sequence[str]:
    if not 1 <= len(names) <= BATCH_MAX:
        raise invalid(f"{field} has {len(names)} services: use 1 to {BATCH_MAX}", field)
    return names


def _service(name: str) -> str:
    if name not in _TITLES:
        raise _refusal([name])
    return name


def _require_served(names: Sequence[str]) -> Sequence[str]:
    """The services, which are enabled already. Raises PERMISSION_DENIED, in Google's words, for
    what Podyard does not serve."""
    missing = [name for name in names if name not in ENABLED]
    if missing:
        raise _refusal(missing)
    return names


def _refusal(names: Sequence[str]) -> PodyardError:
    listed = ", ".join(name[:80] for name in names)
    return PodyardError(
        Code.PERMISSION_DENIED,
        f"Not found or permission denied for service(s): {listed}. Podyard does not serve them; "
        "`gcloud services list` lists what it serves.",
        [
            ErrorInfo(
                "SERVICE_CONFIG_NOT_FOUND_OR_PERMISSION_DENIED",
                "serviceusage.googleapis.com",
                {"services": listed},
            )
        ],
    )


def _state(name: str) -> str:
    return "ENABLED" if name in ENABLED else "DISABLED"


def _number(call: ApiCall) -> int:
    return call.read(lambda uow: identity.project_row(uow, call.project)).number


def _message(number: int, name: str) -> dict[str, Any]:
    return {
        "name": f"projects/{number}/services/{name}",
        "parent": f"projects/{number}",
        "config": {"name": name, "title": _TITLES[name]},
        "state": _state(name),
    }


def _operation(response: dict[str, Any]) -> dict[str, Any]:
    return {"name": DONE, "done": True, "response": response}


HANDLERS: dict[str, Callable[[ApiCall], dict[str, Any]]] = {
    "serviceusage.v1.services.get": get,
    "serviceusage.v1.services.list": list_services,
    "serviceusage.v1.services.batchGet": batch_get,
    "serviceusage.v1.services.enable": enable,
    "serviceusage.v1.services.batchEnable": batch_enable,
    "serviceusage.v1.services.disable": disable,
    "serviceusage.v1.operations.get": get_operation,
}
