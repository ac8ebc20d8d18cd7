"""Trust of the door's clients: the machine's own roots, a file of certificates, or the one with a
fingerprint.

A yard's self-made certificate is signed by its own authority. The door sends that authority with
each handshake, so a client that knows its fingerprint (`sha256:<hex of the certificate's DER>`) can
fetch it, check it, and verify the door's certificate by it as usual.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from podyard.base.errors import Code, PodyardError, invalid

CA_VARIABLE = "PODYARD_CA"  # a PEM file that our clients trust instead of the machine's roots
FINGERPRINT_VARIABLE = "PODYARD_FINGERPRINT"  # of the certificate that they trust instead
FETCH_SECONDS_MAX = 10.0
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")


def fingerprint(certificate: bytes) -> str:
    """Of a certificate in DER."""
    return f"sha256:{hashlib.sha256(certificate).hexdigest()}"


def checked_fingerprint(text: str) -> str:
    """In the form of `fingerprint`. Raises INVALID_ARGUMENT."""
    found = text.strip().lower()
    if not _FINGERPRINT.fullmatch(found):
        raise invalid(f"fingerprint {text!r} must be sha256: and 64 hexadecimal digits")
    return found


def fetch_authority(url: str, wanted: str) -> str:
    """The certificate with the fingerprint `wanted` (PEM) that the server at `url` sends with its
    own.

    Nothing is sent to the server. Raises UNAVAILABLE when it does not answer, UNAUTHENTICATED when
    it is another one.
    """
    wanted = checked_fingerprint(wanted)
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.hostname is None:
        raise invalid(f"URL {url!r} must begin with https://")
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    place = (parts.hostname, parts.port or 443)
    try:
        with (
            socket.create_connection(place, FETCH_SECONDS_MAX) as raw,
            unverified.wrap_socket(raw, server_hostname=parts.hostname) as connection,
        ):
            chain = _chain(connection)
    except (OSError, ValueError) as error:
        raise PodyardError(
            Code.UNAVAILABLE, f"{parts.netloc} does not answer over TLS: {error}"
        ) from None
    for certificate in chain:
        if hmac.compare_digest(fingerprint(certificate), wanted):
            return ssl.DER_cert_to_PEM_cert(certificate)
    other = fingerprint(chain[-1]) if chain else "no certificate"
    raise PodyardError(
        Code.UNAUTHENTICATED,
        f"{parts.netloc} presents {other}, not {wanted}: it is another server, or its authority "
        "was replaced",
    )


def context(ca: Path | None = None, authority: str | None = None) -> ssl.SSLContext:
    """Of a client that trusts the certificates in the file `ca` and in the text `authority` (PEM);
    without both, the machine's roots. Host names are always checked. Raises INVALID_ARGUMENT for
    what cannot be read."""
    if ca is None and authority is None:
        return ssl.create_default_context()
    try:
        found = ssl.create_default_context(cafile=None if ca is None else str(ca), cadata=authority)
    except ssl.SSLError:
        raise invalid(f"{ca or 'the authority'} holds no certificate in PEM") from None
    except OSError as error:
        raise invalid(f"cannot read {ca}: {error.strerror}") from None
    # A certificate that was named is trusted by itself, also where another one has signed it.
    found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return found


def context_of_environment(url: str, environ: Mapping[str, str] | None = None) -> ssl.SSLContext:
    """Return what PODYARD_CA says, else PODYARD_FINGERPRINT (for the server at `url`); the
    machine's roots without both."""
    env = os.environ if environ is None else environ
    path, wanted = env.get(CA_VARIABLE), env.get(FINGERPRINT_VARIABLE)
    if path or not wanted:
        return context(Path(path) if path else None)
    return context(authority=fetch_authority(url, wanted))


def _chain(connection: ssl.SSLSocket) -> list[bytes]:
    """The certificates that the server has sent, DER, its own first. Python has a public method for
    it since 3.13."""
    public: Any = getattr(connection, "get_unverified_chain", None)
    if public is not None:
        return [bytes(one) for one in public()]
    inner: Any = connection
    found = inner._sslobj.get_unverified_chain() or ()
    return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in found]
