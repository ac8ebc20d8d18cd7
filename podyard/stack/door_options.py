"""Ports that `podyard up` opens to other machines: the decision about its options."""

from __future__ import annotations

import dataclasses
import ipaddress
from urllib.parse import urlsplit

from podyard.base.errors import invalid
from podyard.settings import Settings

LOOPBACK = "127.0.0.1"


def with_door(settings: Settings) -> Settings:
    """`settings` with the door that they ask for, and with loopback for everything else.

    Raises INVALID_ARGUMENT: beyond loopback there is only the door, and the door has TLS.
    """
    bind = settings.bind_address
    own_files = settings.tls_cert is not None or settings.tls_key is not None
    kinds = [
        name
        for name, wanted in (
            ("--tls", settings.tls), ("--tls-cert", own_files),
            ("--behind-proxy", settings.behind_proxy),
        ) if wanted
    ]  # fmt: skip
    if len(kinds) > 1:
        raise invalid(f"{' and '.join(kinds)} exclude each other: choose one")
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise invalid("--tls-cert and --tls-key belong together: give both")
    if not kinds:
        if not is_loopback(bind):
            raise invalid(
                f"--bind {bind} would take passwords and tokens from other machines without "
                "encryption: add --tls (a "
                "certificate that Podyard makes), --tls-cert FILE --tls-key FILE, or --behind-proxy"
            )
        if settings.public_url is not None:
            raise invalid("--public-url needs --tls, --tls-cert and --tls-key, or --behind-proxy")
        return settings
    if settings.behind_proxy and settings.public_url is None:
        raise invalid(
            "--behind-proxy needs --public-url URL: the address that clients use to reach the proxy"
        )
    _check_address(bind)
    return dataclasses.replace(
        settings,
        bind_address=bind if is_loopback(bind) else LOOPBACK,
        public_address=bind,
        public_url=None
        if settings.public_url is None
        else _checked_url(settings.public_url, settings.behind_proxy),
    )


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _check_address(bind: str) -> None:
    try:
        ipaddress.ip_address(bind)
    except ValueError:
        if bind != "localhost":
            text = (
                f"--bind {bind!r} must be an IP address of this machine, or 0.0.0.0 for all of them"
            )
            raise invalid(text) from None


def _checked_url(url: str, may_be_plain: bool) -> str:
    """Without a slash at its end."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise invalid(f"--public-url {url!r} is not a URL") from None
    schemes = ("https", "http") if may_be_plain else ("https",)
    has_more = (
        parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None
    )
    if parts.scheme not in schemes or not parts.hostname or has_more or port == 0:
        example = "https://tpu.example.com or https://192.0.2.7:8743"
        raise invalid(
            f"--public-url {url!r} must be {' or '.join(schemes)}, a host and a port "
            f"only: {example}"
        )
    return url.rstrip("/")
