"""Secrets of users, encrypted where they are stored: who reads the database or a copy of it does
not learn them.

AES-256-GCM with a key of the data folder (`secrets.key`, 0600). Each process that may need it calls
`use` once; in others, and in tests without a data folder, texts stay as they are. What is not
sealed is taken as plain text: rows of before there was a key.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import secrets
from pathlib import Path

from podyard.base.errors import Code, PodyardError

KEY_BYTES = 32
_NONCE_BYTES = 12  # NIST SP 800-38D: a fresh one for each text; 2^32 texts are safe with one key
_PREFIX = "sealed:1:"

_key: bytes | None = None


def use(path: Path, *, make: bool = True) -> None:
    """The key in this file. Without a file it is made, or (`make` false: on another machine) there
    is none.

    Raises FAILED_PRECONDITION for one that is damaged.
    """
    global _key
    if not make and not path.exists():
        return
    try:
        found = path.read_bytes() if path.exists() else _make_key(path)
    except OSError as error:
        raise _refusal(f"the key {path} cannot be read or written: {error.strerror}") from None
    if len(found) != KEY_BYTES:
        raise _refusal(
            f"the key {path} is damaged: restore it from a backup; without it stored "
            "secrets are lost"
        )
    _key = found


def seal(text: str) -> str:
    """In the form that `unseal` reads."""
    if _key is None:
        return text
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(_NONCE_BYTES)
    return _PREFIX + base64.b64encode(
        nonce + AESGCM(_key).encrypt(nonce, text.encode(), None)
    ).decode("ascii")


def unseal(text: str) -> str:
    """Raises FAILED_PRECONDITION for what was sealed with another key, or where there is no key."""
    if not text.startswith(_PREFIX):
        return text
    if _key is None:
        raise _refusal(
            "a stored secret cannot be read: this process has no secrets.key; copy it from the "
            "first machine"
        )
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        data = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        return AESGCM(_key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], None).decode()
    except (InvalidTag, binascii.Error, ValueError):
        raise _refusal(
            "a stored secret cannot be read: it was sealed with another secrets.key"
        ) from None


def _make_key(path: Path) -> bytes:
    """Never over one that another process has made meanwhile."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
    return path.read_bytes()


def _refusal(message: str) -> PodyardError:
    return PodyardError(Code.FAILED_PRECONDITION, message)
