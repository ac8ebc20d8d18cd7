"""The authority of one data folder, which gcloud trusts with the exports of `podyard env`.

gcloud sends what it asks of other hosts than Podyard through a proxy of `podyard up`, which ends
TLS with certificates of this authority. Who makes it first, `podyard env` or the proxy, writes it
for both.
"""

from __future__ import annotations

import datetime
import ssl
import tempfile
from pathlib import Path

from podyard.base.clock import NANOS_PER_SECOND, RealClock
from podyard.base.files import write_atomically
from podyard.http.certificates import Authority

ROOTS_FILE = "gcloud-roots.pem"
PROXY_FILE = "gcloud-proxy.json"  # where the proxy says which port it has
_KEY_FILE = "gcloud-authority.key"
_LEFT_SECONDS_MIN = 30 * 86400.0  # with less time left an authority is renewed
CONTEXTS_MAX = 256  # hosts whose certificates are kept; gcloud knows about 200


def roots_path(data: Path) -> Path:
    return data / ROOTS_FILE


def authority(data: Path, clock: RealClock) -> Authority:
    """The folder's authority, made when there is none that lasts. Raises OSError."""
    moment = _moment(clock)
    try:
        found = Authority(roots_path(data).read_bytes(), (data / _KEY_FILE).read_bytes())
        if found.lasts(moment, _LEFT_SECONDS_MIN):
            return found
    except (FileNotFoundError, ValueError):
        pass
    made = Authority.make("Podyard, for gcloud", moment)
    write_atomically(data / _KEY_FILE, made.key)
    write_atomically(roots_path(data), made.certificate)
    return made


class Contexts:
    """TLS of a server that is whatever host a client asks for."""

    def __init__(self, data: Path, clock: RealClock) -> None:
        self._data = data
        self._clock = clock
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}

    def of(self, *hosts: str) -> ssl.SSLContext:
        """Raises OSError, ValueError for a name that is not a host name."""
        if hosts not in self._contexts:
            if len(self._contexts) >= CONTEXTS_MAX:
                self._contexts.clear()
            certificate, key = authority(self._data, self._clock).issue(hosts, _moment(self._clock))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            with tempfile.NamedTemporaryFile(dir=self._data, prefix=".gcloud-") as file:  # 0600
                file.write(key + certificate)
                file.flush()
                context.load_cert_chain(file.name)
            context.set_alpn_protocols(["http/1.1"])
            self._contexts[hosts] = context
        return self._contexts[hosts]


def _moment(clock: RealClock) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clock.now().nanos / NANOS_PER_SECOND, datetime.UTC)
