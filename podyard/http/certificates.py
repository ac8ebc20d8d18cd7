"""An authority of our own and the certificates that it issues, for the proxies that stand for
Google's hosts."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from collections.abc import Sequence
from typing import Any

# no command of `podyard run` runs longer; the authority of `podyard up` is renewed in time
VALID_DAYS = 90
YARD_VALID_DAYS = 3650  # of the authority whose fingerprint agents and people keep
_KEY_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Authority:
    """Certificate and key, PEM. All extensions that strict clients (RFC 5280, Python's
    VERIFY_X509_STRICT) ask for."""

    certificate: bytes
    key: bytes

    @classmethod
    def make(
        cls,
        name: str,
        now: datetime.datetime,
        days: int = VALID_DAYS,
        domains: Sequence[str] = (),
    ) -> Authority:
        """`domains`: the only ones, with all hosts below them, that it may certify; none of them:
        it may certify all."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        # Elliptic keys: made in a millisecond, where RSA takes tenths of a second.
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = (
            _builder(subject, subject, key.public_key(), key.public_key(), now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True), critical=True)
        )
        if domains:
            permitted = [x509.DNSName(domain) for domain in domains]
            builder = builder.add_extension(x509.NameConstraints(permitted, None), critical=True)
        made = builder.sign(key, hashes.SHA256())
        return cls(made.public_bytes(_pem()), _private(key))

    def issue(self, hosts: Sequence[str], now: datetime.datetime) -> tuple[bytes, bytes]:
        """(certificate of a server that is all of `hosts`, names and addresses, its key), PEM."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        authority = x509.load_pem_x509_certificate(self.certificate)
        signer = serialization.load_pem_private_key(self.key, None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        # A common name has at most 64 characters; what counts are the names of the extension.
        made = (
            _builder(
                _name(hosts[0][:64]), authority.subject, key.public_key(), signer.public_key(), now
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
            )
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(signer, hashes.SHA256())
        )
        return made.public_bytes(_pem()), _private(key)

    def lasts(self, moment: datetime.datetime, seconds: float) -> bool:
        """Return whether it is valid now and for so many seconds more."""
        later = moment + datetime.timedelta(seconds=seconds)
        return self.is_valid_at(moment) and self.is_valid_at(later)

    def is_valid_at(self, moment: datetime.datetime) -> bool:
        from cryptography import x509

        certificate = x509.load_pem_x509_certificate(self.certificate)
        return certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: Any,
    issuer: Any,
    public: Any,
    issuer_public: Any,
    now: datetime.datetime,
    days: int = VALID_DAYS,
) -> Any:
    from cryptography import x509

    day = datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + days * day)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False
        )
    )


def _usage(**given: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(**{**dict.fromkeys(_KEY_USAGES, False), **given})


def _pem() -> Any:
    from cryptography.hazmat.primitives import serialization

    return serialization.Encoding.PEM


def _private(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    found: bytes = key.private_bytes(
        _pem(), serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return found
