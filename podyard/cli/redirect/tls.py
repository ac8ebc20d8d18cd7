"""The certificates of one `podyard run`: an authority that lives as long as the command, and what
the command trusts besides it."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path

from podyard.base.clock import NANOS_PER_SECOND, RealClock
from podyard.http.certificates import Authority

BUNDLE_BYTES_MAX = 64 << 20  # certifi's has 0.3 MB
# Each is read by some client: httplib2; requests; OpenSSL, Go, httpx; curl; gRPC; gcloud.
BUNDLE_VARIABLES = (
    "HTTPLIB2_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
)


def roots(environ: Mapping[str, str]) -> bytes:
    """Return what the command would trust without us: the files that the variables name, else the
    system's, else certifi's."""
    named = dict.fromkeys(environ[name] for name in BUNDLE_VARIABLES if environ.get(name))
    found = [data for path in named if (data := _certificates(Path(path).expanduser()))]
    if not found:
        system = ssl.get_default_verify_paths().cafile
        found = [_certificates(Path(system))] if system is not None else []
    if not any(found):
        import certifi

        found = [Path(certifi.where()).read_bytes()]
    return b"\n".join(found)


def _certificates(path: Path) -> bytes:
    """A file's content, or that of all files of a folder; nothing when it cannot be read."""
    try:
        files = (
            [item for item in sorted(path.iterdir()) if item.is_file()] if path.is_dir() else [path]
        )
        if sum(item.stat().st_size for item in files) > BUNDLE_BYTES_MAX:
            return b""
        return b"\n".join(data for item in files if b"-----BEGIN " in (data := item.read_bytes()))
    except OSError:
        return b""


def server_contexts(
    folder: Path,
    hosts: Sequence[str],
    protocols: Sequence[Sequence[str]],
    clock: RealClock,
    authority: Authority | None = None,
) -> tuple[list[ssl.SSLContext], bytes]:
    """(contexts of a server that is all of `hosts`, the certificate to trust, PEM).

    A context for each of `protocols`: those of ALPN, the preferred one first. `authority`: None
    makes one whose key is written nowhere. The server's key is in `folder` for the moment in which
    OpenSSL reads it.
    """
    now = moment(clock)
    signer = authority or Authority.make("Podyard, for one command", now)
    certificate, key = signer.issue(hosts, now)
    path = folder / "server.pem"
    contexts = [ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in protocols]
    try:
        path.touch(mode=0o600)
        path.write_bytes(key + certificate)
        for context, names in zip(contexts, protocols, strict=True):
            context.load_cert_chain(path)
            context.set_alpn_protocols(list(names))
    finally:
        path.unlink(missing_ok=True)
    return contexts, signer.certificate


def moment(clock: RealClock) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clock.now().nanos / NANOS_PER_SECOND, datetime.UTC)
