"""The certificate of the door: that of two files, or one made here and signed by the yard's own
authority.

The authority (`DATA/tls/ca.pem`, `ca.key`) is made once and stays: agents and people keep its
fingerprint. The door's own certificate is made at each start of the API, and again when little of
its time is left. Files are read again when they have changed, since tools that renew certificates
replace them in place.
"""

from __future__ import annotations

import datetime
import logging
import socket
import ssl
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from podyard.base.clock import NANOS_PER_SECOND, RealClock
from podyard.base.errors import Code, PodyardError
from podyard.base.files import write_atomically
from podyard.http.certificates import YARD_VALID_DAYS, Authority
from podyard.http.trust import fingerprint
from podyard.settings import Settings

logger = logging.getLogger(__name__)

CA_FILE, _KEY_FILE = "ca.pem", "ca.key"
RENEW_SECONDS = 30 * 86_400.0  # with less time left a certificate made here is made again
LOOK_SECONDS = 60.0  # between two looks at files and dates
FILE_BYTES_MAX = 1 << 20  # a chain has about 10 KB
_AUTHORITY_NAME = "Podyard yard authority"


class DoorCertificate:
    """The door's TLS. `context` stays the same object; what it presents is replaced in it. Raises
    FAILED_PRECONDITION
    at the beginning for files that cannot be used."""

    def __init__(self, settings: Settings, clock: RealClock) -> None:
        self._settings = settings
        self._clock = clock
        self._stamp: tuple[int, ...] = ()
        self._names: set[str] = set()
        self._expires = datetime.datetime.max.replace(tzinfo=datetime.UTC)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self._load()

    def look(self) -> None:
        """Renews what is to be renewed. A file that cannot be used now leaves the certificate as it
        was."""
        is_made = self._settings.tls_cert is None
        due = _now(self._clock) + datetime.timedelta(seconds=RENEW_SECONDS) > self._expires
        # Addresses come and go: a laptop in another network, a VPN.
        is_stale = (
            due or set(names(self._settings)) - self._names
            if is_made
            else self._stamp != self._files_stamp()
        )
        if not is_stale:
            return
        try:
            self._load()
            logger.info("the door has a new certificate, valid until %s", self._expires.isoformat())
        except (PodyardError, OSError) as error:
            self._stamp = self._files_stamp()
            logger.warning("the door keeps its certificate: %s", error)

    def _load(self) -> None:
        cert, key = self._settings.tls_cert, self._settings.tls_key
        if cert is None or key is None:
            made = yard_authority(self._settings.tls_path, self._clock)
            wanted = names(self._settings)
            certificate, private = made.issue(wanted, _now(self._clock))
            self._names = set(wanted)
            chain = certificate + made.certificate
        else:
            self._stamp = self._files_stamp()
            chain, private = _read("--tls-cert", cert), _read("--tls-key", key)
        self._expires = _check_pair(chain, private, cert, key, _now(self._clock))
        # 0600; OpenSSL reads from files only
        with tempfile.NamedTemporaryFile(prefix="podyard-door-") as file:
            file.write(private + b"\n" + chain)
            file.flush()
            self.context.load_cert_chain(file.name)

    def _files_stamp(self) -> tuple[int, ...]:
        found = []
        for path in (self._settings.tls_cert, self._settings.tls_key):
            try:
                found.append(path.stat().st_mtime_ns if path is not None else 0)
            except OSError:
                found.append(-1)
        return tuple(found)


def yard_authority(folder: Path, clock: RealClock) -> Authority:
    """The yard's authority, made when there is none. Raises FAILED_PRECONDITION for one that is
    damaged or expired: a new one would lock out everybody who trusts it, so that is for the
    operator to decide."""
    certificate, key = folder / CA_FILE, folder / _KEY_FILE
    now = _now(clock)
    if not certificate.exists() and not key.exists():
        made = Authority.make(_AUTHORITY_NAME, now, YARD_VALID_DAYS)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(key, made.key)
            write_atomically(certificate, made.certificate)
        except OSError as error:
            raise _refusal(
                f"cannot write the yard's authority in {folder}: {error.strerror}"
            ) from None
        return made
    found = Authority(_read("the authority", certificate), _read("the authority", key))
    advice = (
        f"restore {folder}, or delete it: then a new authority is made, and "
        "agents and people "
        "have to trust it"
    )
    try:
        _check_pair(found.certificate, found.key, certificate, key, now)
    except PodyardError as error:
        raise _refusal(f"{error.message}; {advice}") from None
    return found


def pin_of(settings: Settings, clock: RealClock) -> str | None:
    """The fingerprint by which clients can trust this door; None where they trust it by a public
    authority, or where
    the operator gives them a file: behind a proxy, and with a certificate that does not end with
    its own root."""
    if settings.behind_proxy:
        return None
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    if settings.tls_cert is None:
        last = x509.load_pem_x509_certificate(yard_authority(settings.tls_path, clock).certificate)
    else:
        last = x509.load_pem_x509_certificates(_read("--tls-cert", settings.tls_cert))[-1]
        if last.subject != last.issuer:
            return None
    return fingerprint(last.public_bytes(Encoding.DER))


def publish_fingerprint(settings: Settings, clock: RealClock) -> None:
    """Writes what `pinned` finds (nothing: an empty file) for those who tell people how to join or
    connect."""
    try:
        settings.tls_path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(settings.fingerprint_path, f"{pin_of(settings, clock) or ''}\n".encode())
    except OSError as error:
        raise _refusal(f"cannot write {settings.fingerprint_path}: {error.strerror}") from None


def names(settings: Settings) -> list[str]:
    """Names and addresses by which the door is reached, without repetition; the one of its URL
    first."""
    found = [
        urlsplit(settings.public_url or "").hostname or "",
        settings.public_address or "",
        socket.gethostname(),
    ]
    if settings.public_address in ("0.0.0.0", "::"):
        import psutil

        families = (socket.AF_INET, socket.AF_INET6)
        every = [
            one
            for interface in psutil.net_if_addrs().values()
            for one in interface
            if one.family in families
        ]
        found += [one.address.partition("%")[0] for one in every]
    found += ["localhost", "127.0.0.1", "::1"]
    return [name for name in dict.fromkeys(found) if name and name not in ("0.0.0.0", "::")]


def _check_pair(
    chain: bytes, private: bytes, cert: Path | None, key: Path | None, now: datetime.datetime
) -> datetime.datetime:
    """When the certificate ends. Raises FAILED_PRECONDITION for a pair that no client would
    accept."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificates(chain)[0]
    except (ValueError, IndexError):
        raise _refusal(f"{cert} holds no certificate in PEM") from None
    try:
        own = load_pem_private_key(private, None)
    except TypeError:
        raise _refusal(
            f"the key in {key} is encrypted: decrypt it first, for example with `openssl pkey`"
        ) from None
    except ValueError:
        raise _refusal(f"{key} holds no private key in PEM") from None
    if own.public_key() != certificate.public_key():
        raise _refusal(f"the key in {key} does not match the certificate in {cert}")
    if certificate.not_valid_after_utc <= now:
        raise _refusal(
            f"the certificate in {cert} expired at "
            f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        )
    if certificate.not_valid_before_utc > now:
        since = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M}"
        raise _refusal(f"the certificate in {cert} is not valid before {since} UTC")
    return certificate.not_valid_after_utc


def _read(what: str, path: Path) -> bytes:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise _refusal(f"{what}: {path} has more than {FILE_BYTES_MAX} bytes")
        return path.read_bytes()
    except OSError as error:
        raise _refusal(f"{what}: cannot read {path}: {error.strerror}") from None


def _refusal(message: str) -> PodyardError:
    return PodyardError(Code.FAILED_PRECONDITION, message)


def _now(clock: RealClock) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clock.now().nanos / NANOS_PER_SECOND, datetime.UTC)
