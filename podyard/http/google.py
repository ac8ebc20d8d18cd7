"""Google's APIs other than Cloud TPU, as Podyard answers for them: nothing is sent to Google.

Compute Engine is served by the API (`api/compute`); what is not served is refused.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from podyard.base.errors import Code

GCLOUD_AGENTS = ("google-cloud-sdk", "gcloud/", "apitools ")  # how its user agents begin
GCLOUD_STATUS = 405  # for what is not served
COMPUTE_HOST = "compute.googleapis.com"
SHARED_HOST = "www.googleapis.com"  # once of all APIs
BILLING_HOST = "cloudbilling.googleapis.com"
# Of Identity-Aware Proxy's tunnels; the second for clients with a certificate.
IAP_HOST = "tunnel.cloudproxy.app"
_IAP_HOSTS = frozenset({IAP_HOST, f"mtls.{IAP_HOST}"})
CATALOGUE_PATH = "/v1/services"  # of Cloud Billing: the list of prices
# `/google/HOST/PATH` is what a client asked of `https://HOST/PATH`.
API_PREFIX = "/google/"
# The APIs that launchers ask first (`api/google_apis`), by the names of their hosts.
API_NAMES = (
    "cloudbilling", "cloudresourcemanager", "iam", "logging", "monitoring", "serviceusage",
)  # fmt: skip
_API_HOSTS = frozenset(f"{name}.googleapis.com" for name in API_NAMES)
_COMPUTE_PATHS = ("/compute/", "/discovery/v1/apis/compute/", "/batch/compute/")
_OLD_DISCOVERY = tuple(f"/discovery/v1/apis/{name}/" for name in API_NAMES)


def api_path(host: str, target: str) -> str | None:
    """The path, with its query, at which the API answers a call of Compute Engine or of one of
    `API_NAMES`; None for all other calls. Compute Engine's discovery document has another path
    there, since `/$discovery/rest` is Cloud TPU's."""
    path, _, query = target.partition("?")
    if host in (COMPUTE_HOST, SHARED_HOST) and path.startswith(_COMPUTE_PATHS):
        return target
    if host == COMPUTE_HOST and path == "/$discovery/rest":
        version = parse_qs(query).get("version", ["v1"])[0]
        return f"/discovery/v1/apis/compute/{version}/rest"
    if host == BILLING_HOST and path.startswith(CATALOGUE_PATH):
        return target
    if host in _IAP_HOSTS:
        return f"{API_PREFIX}{IAP_HOST}{target}"
    if host in _API_HOSTS:
        return f"{API_PREFIX}{host}{target}"
    return target if host == SHARED_HOST and path.startswith(_OLD_DISCOVERY) else None


def refusal(what: str, user_agent: str = "") -> tuple[int, dict[str, Any]]:
    """501 for what is not served.

    gcloud (apitools' http_wrapper) repeats every request that was answered with 500 or more five
    times within half a minute, and then prints the whole answer and a guess about the network. It
    gets the same error with the HTTP status 405, and prints the message at once.
    """
    message = f"{what} is not served by Podyard; nothing was sent to Google"
    status, body = envelope(Code.UNIMPLEMENTED, message, "notImplemented")
    return GCLOUD_STATUS if user_agent.startswith(GCLOUD_AGENTS) else status, body


def envelope(code: Code, message: str, reason: str, status: int = 0) -> tuple[int, dict[str, Any]]:
    """(HTTP status, Google's error), with the `errors` that the older APIs, Compute Engine's too,
    have besides. `status`: another one than the code has everywhere else."""
    status = status or code.http_status
    errors = [{"message": message, "domain": "global", "reason": reason}]
    return status, {
        "error": {"code": status, "message": message, "errors": errors, "status": code.name}
    }
