"""Addresses that webhooks may have.

Users who may set a budget make this machine send requests. Some addresses are therefore always
refused:
link-local addresses and those of clouds' metadata servers (they hand out credentials), unspecified
ones, multicast. A yard whose projects have different owners refuses what is not of the public
Internet as well (`public_only`), as does one with `PODYARD_WEBHOOK_ADDRESSES=public`.

An address that is written out is judged when the budget is set; what a name stands for only when
something is sent, since it may change.
"""

from __future__ import annotations

import ipaddress
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from urllib.parse import SplitResult, urlsplit

from podyard.base.errors import invalid
from podyard.settings import WEBHOOK_ADDRESSES_PUBLIC, webhook_addresses

URL_LENGTH_MAX = 2000
SHOWN_MAX = 80  # characters of an address, in the reason why it is refused
PORTS = {"http": 80, "https": 443}

_NO_METADATA = "a link-local address or a metadata server"
# Metadata servers other than the usual 169.254.169.254: of Amazon and Google over IPv6, of Alibaba,
# of Azure.
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16")
)
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data.ec2.internal"}
)
_BROADCAST = IPv4Address("255.255.255.255")
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address

Address = IPv4Address | IPv6Address


def check(url: str, field: str, *, public_only: bool = False) -> SplitResult:
    """The parts of an address that webhooks may be sent to. Raises INVALID_ARGUMENT that names the
    field."""
    try:
        parts = urlsplit(url)
        why = _why_not_url(url, parts, public_only)
    except ValueError as error:
        why = f"not understood: {error}"
    if why is not None:
        raise invalid(
            f"{field}: webhooks cannot be sent to {url[:SHOWN_MAX]!r}: the address is {why}", field
        )
    return parts


def _why_not_url(url: str, parts: SplitResult, public_only: bool) -> str | None:
    """Raises ValueError for a port that is none."""
    if parts.scheme not in PORTS or not parts.hostname or parts.port == 0:
        return "not an http or https URL"
    if "@" in parts.netloc:
        return "a URL with a user or a password, which Podyard would store and show"
    if len(url) > URL_LENGTH_MAX:
        return f"longer than {URL_LENGTH_MAX} characters"
    if not all("!" <= character <= "~" for character in url):
        return "not written in ASCII without blanks (%C3%BC in a path, xn--... in a name)"
    return _why_not_host(parts.hostname, public_only)


def why_not(address: Address, *, public_only: bool = False) -> str | None:
    """Return what an address is that nothing is sent to; None: something may be sent."""
    one = _target(address)
    if one.is_link_local or one in _METADATA:
        return _NO_METADATA
    if one.is_unspecified:
        return "not the address of a machine"
    if one.is_multicast or one == _BROADCAST:
        return "a multicast address"
    if webhook_addresses() == WEBHOOK_ADDRESSES_PUBLIC and not one.is_global:
        return "not of the public Internet (PODYARD_WEBHOOK_ADDRESSES=public)"
    if public_only and not one.is_global:
        return "not of the public Internet, and projects here have different owners"
    return None


def _why_not_host(host: str, public_only: bool) -> str | None:
    """The same of what stands in an address, without asking anybody what a name stands for."""
    written = _literal_address(host)
    if written is not None:
        return why_not(written, public_only=public_only)
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES:
        return _NO_METADATA
    local = name == "localhost" or name.endswith(".localhost")
    return why_not(IPv4Address("127.0.0.1"), public_only=public_only) if local else None


def _literal_address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        # What resolvers take for an address too: 127.1, 0x7f000001, 2130706433.
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _target(address: Address) -> Address:
    """The IPv4 address that an IPv6 address leads to, where it does."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address
