"""TLS between the machines of one slice, by a key that all of them have: no authority, no dates, no
names.

The key (32 bytes, from the API) is the seed of an Ed25519 key, and its certificate is the same
bytes wherever it is made. Each side shows it and trusts nothing else, so who has not the key is
refused in the handshake (RFC 8446).
"""

from __future__ import annotations

import datetime
import ssl
import tempfile

_NAME = "podyard slice"
# Clocks of machines may differ, and a key is as old as its slice: dates decide nothing here.
_FROM, _UNTIL = datetime.datetime(2000, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59)


def contexts(key: bytes) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(of the machine that dials, of the one that listens)."""
    found = []
    certificate, private = _certificate(key)
    for purpose in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
        context = ssl.SSLContext(purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=certificate.decode("ascii"))
        # `ssl` reads a key from a file only; it is gone before anybody else could open it.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + private)
            file.flush()
            context.load_cert_chain(file.name)
        found.append(context)
    return found[0], found[1]


def _certificate(key: bytes) -> tuple[bytes, bytes]:
    """(certificate, private key), PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.x509.oid import NameOID

    private = Ed25519PrivateKey.from_private_bytes(key)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, None)
    )
    pem = serialization.Encoding.PEM
    secret = private.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(pem), secret
