"""The ssh key of a host, derived from the yard's secret and the host's id (HKDF, RFC 5869).

It costs nothing until a client asks: `gcloud ... ssh` reads the keys of all hosts of a node from
its guest attributes before any of them runs, and no file or row holds one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

KEY_TYPE = "ssh-ed25519"


def key_seed(secret: str, host_id: str) -> bytes:
    """The private Ed25519 key of a host: 32 bytes."""
    return hkdf(secret.encode(), f"podyard ssh host key {host_id}".encode())


def public_key(seed: bytes) -> str:
    """The public key as OpenSSH writes it, base64 without its type (RFC 8709)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    kind = KEY_TYPE.encode()
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (kind, public))
    return base64.b64encode(blob).decode()


def private_openssh(seed: bytes) -> bytes:
    """The private key as a file of OpenSSH's, without a passphrase."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )


def notebook_token(seed: bytes) -> str:
    """The token of the host's notebook: it changes with the host's key, and with the node."""
    return hkdf(seed, b"podyard notebook").hex()


def relay_seed(seed: bytes) -> bytes:
    """The private key by which the API enters the host's ssh server for tunnels into its box."""
    return hkdf(seed, b"podyard relay")


def hkdf(secret: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 without a salt, for one block of output (RFC 5869, section 2)."""
    pseudorandom = hmac.new(bytes(hashlib.sha256().digest_size), secret, hashlib.sha256).digest()
    return hmac.new(pseudorandom, info + b"\x01", hashlib.sha256).digest()
