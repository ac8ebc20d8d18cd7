"""Google's hosts, as one `podyard run` knows them: which they are, and which of their calls were
refused.

The command's requests carry a token of Podyard's, which only Podyard may see: nothing is sent to
Google.
"""

from __future__ import annotations

import threading
from collections import Counter

DISCOVERY_HOST = "www.googleapis.com"
STORAGE_HOST = "storage.googleapis.com"
_STORAGE_PATHS = (
    "/storage/v1/",
    "/upload/storage/v1/",
    "/download/storage/v1/",
    "/resumable/",
    "/batch/storage/",
)
# For the certificate: a star stands for one label. The second ones are client certificates' and
# buckets' own hosts.
CERTIFICATE_NAMES = (
    "*.googleapis.com", "*.mtls.googleapis.com", "*.storage.googleapis.com", "googleapis.com",
    "*.google.internal",
)  # fmt: skip
DOMAINS = ("googleapis.com", "google.internal")
HOSTS_NAMED_MAX = 10  # in the line at the end


def is_google(host: str) -> bool:
    """Return whether the host, in lower case and without a last dot, is one of Google's APIs or
    inside its cloud."""
    return any(host == domain or host.endswith(f".{domain}") for domain in DOMAINS)


def is_certified(host: str) -> bool:
    """Return whether `CERTIFICATE_NAMES` has the host: a client takes no other for it."""
    return not {host, f"*.{host.partition('.')[2]}"}.isdisjoint(CERTIFICATE_NAMES)


class Refusals:
    """Hosts that were asked for something that is not served, with how often. All threads of a
    proxy add to it."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, host: str) -> None:
        with self._lock:
            self._counts[host] += 1

    def line(self) -> str | None:
        """Return what to say when the command has ended; None when nothing was refused."""
        with self._lock:
            hosts = self._counts.most_common()
        if not hosts:
            return None
        named = [f"{host} ({count})" for host, count in hosts[:HOSTS_NAMED_MAX]]
        rest = f" and {len(hosts) - len(named)} more hosts" if len(hosts) > len(named) else ""
        return f"podyard run: not served, and nothing was sent to Google: {', '.join(named)}{rest}"


def is_tpu_discovery(host: str, path: str) -> bool:
    """Return whether it is the document of Cloud TPU that is asked for, where those of all APIs
    once were."""
    return host == DISCOVERY_HOST and path.startswith("/discovery/v1/apis/tpu/")


def is_storage(host: str, path: str) -> bool:
    """Return whether it is a call of Cloud Storage: its JSON API has two hosts."""
    return host == STORAGE_HOST or (host == DISCOVERY_HOST and path.startswith(_STORAGE_PATHS))
