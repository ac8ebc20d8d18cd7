"""The certificates of one `podyard run`: an authority that lives as long as the command, and what the command trusts
besides it."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path

from podyard.base.clock import NANOS_PER_SECOND, RealClock

VALID_DAYS = 90  # no command runs longer; the authority's key is gone when it ends
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

_KEY_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


def roots(environ: Mapping[str, str]) -> bytes:
    """What the command would trust without us: the files that the variables name, else the system's, else certifi's."""
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
        files = [item for item in sorted(path.iterdir()) if item.is_file()] if path.is_dir() else [path]
        if sum(item.stat().st_size for item in files) > BUNDLE_BYTES_MAX:
            return b""
        return b"\n".join(data for item in files if b"-----BEGIN " in (data := item.read_bytes()))
    except OSError:
        return b""


def server_contexts(
    folder: Path, hosts: Sequence[str], protocols: Sequence[Sequence[str]], clock: RealClock
) -> tuple[list[ssl.SSLContext], bytes]:
    """(contexts of a server that is all of `hosts`, the certificate to trust, PEM).

    A context for each of `protocols`: those of ALPN, the preferred one first. The key of the authority is written
    nowhere; the server's is in `folder` for the moment in which OpenSSL reads it.
    """
    authority, certificate, key = _issue(hosts, clock)
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
    return contexts, authority


def _issue(hosts: Sequence[str], clock: RealClock) -> tuple[bytes, bytes, bytes]:
    """(the authority's certificate, the server's, the server's key), PEM, with all extensions that strict clients (RFC
    5280, Python's VERIFY_X509_STRICT) ask for."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.datetime.fromtimestamp(clock.now().nanos / NANOS_PER_SECOND, datetime.UTC)
    day = datetime.timedelta(days=1)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Podyard, for one command")])
    # Elliptic keys: made in a millisecond, where RSA takes tenths of a second.
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        public, issuer = key.public_key(), authority_key.public_key()
        return (
            x509.CertificateBuilder()
            .issuer_name(name)
            .subject_name(subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + VALID_DAYS * day)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        )

    def usage(**given: bool) -> x509.KeyUsage:
        none = dict.fromkeys(_KEY_USAGES, False)
        return x509.KeyUsage(**{**none, **given})

    authority = (
        builder(name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(key_cert_sign=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    server = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])]), server_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return authority.public_bytes(pem), server.public_bytes(pem), key
