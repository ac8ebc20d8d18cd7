"""Joining of other machines: the address of this platform for it, and what it is to trust."""

from __future__ import annotations

from podyard.settings import Settings


def address(settings: Settings, base_url: str) -> str:
    """`base_url`: of the request that asks, where there is no door."""
    return settings.public_url or base_url.rstrip("/")


def token(settings: Settings, secret: str) -> str:
    """The secret of a join token with the fingerprint of the door's authority, where clients need
    one."""
    if settings.public_url is None:
        return secret
    try:
        digest = (
            settings.fingerprint_path.read_text(encoding="ascii").strip().removeprefix("sha256:")
        )
    except OSError:
        return secret
    return f"{secret}.{digest}" if digest else secret


def command(settings: Settings, base_url: str, secret: str) -> str:
    """Return what to run on the machine that is to join."""
    return f"podyard agent join {address(settings, base_url)} --token {token(settings, secret)}"
