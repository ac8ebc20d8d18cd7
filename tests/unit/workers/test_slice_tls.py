"""Two machines with one key understand each other; with another key, or without one, neither goes
on."""

from __future__ import annotations

import ssl

import pytest

from podyard.workers.kit import slice_tls

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


def _talk(dials: ssl.SSLContext, listens: ssl.SSLContext) -> bytes:
    """Return what the listening side reads of what the dialling one says; both in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = dials.wrap_bio(back, there, server_hostname="any")
    server = listens.wrap_bio(there, back, server_side=True)
    ready = set()
    for _ in range(10):
        for side in (client, server):
            try:
                side.do_handshake()
                ready.add(side)
            except ssl.SSLWantReadError:
                pass
        if len(ready) == 2:
            client.write(b"frames")
            return server.read()
    raise AssertionError("the handshake does not end")


def test_machines_with_the_same_key_are_connected() -> None:
    assert _talk(slice_tls.contexts(KEY)[0], slice_tls.contexts(KEY)[1]) == b"frames"


def test_another_key_is_refused() -> None:
    with pytest.raises(ssl.SSLError, match="certificate"):
        _talk(slice_tls.contexts(OTHER)[0], slice_tls.contexts(KEY)[1])


def test_the_dialling_side_has_to_show_its_key_too() -> None:
    curious = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    curious.check_hostname, curious.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLError, match=r"(?i)peer.did.not.return.a.certificate"):
        _talk(curious, slice_tls.contexts(KEY)[1])


def test_one_that_shows_the_certificate_of_another_key_is_refused() -> None:
    forger = slice_tls.contexts(OTHER)[0]
    forger.verify_mode = ssl.CERT_NONE
    with pytest.raises(ssl.SSLError, match="certificate"):
        _talk(forger, slice_tls.contexts(KEY)[1])
