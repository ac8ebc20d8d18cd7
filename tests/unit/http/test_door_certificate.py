"""The certificate of the door, and what clients trust, over real TLS on loopback."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.base.clock import NANOS_PER_SECOND, ManualClock, RealTime
from podyard.base.errors import Code, PodyardError
from podyard.http import trust
from podyard.http.certificates import VALID_DAYS, Authority
from podyard.http.door_certificate import DoorCertificate, pin_of, yard_authority
from podyard.settings import Settings

DAY = 86_400.0


def _clock() -> ManualClock:
    # Clients check dates by the machine's clock, so the test's clock begins there.
    now = datetime.datetime.now(datetime.UTC)
    return ManualClock(RealTime(int(now.timestamp()) * NANOS_PER_SECOND))


def _moment(clock: ManualClock) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clock.now().nanos / NANOS_PER_SECOND, datetime.UTC)


def _settings(data: Path, cert: Path | None = None, key: Path | None = None) -> Settings:
    return Settings(
        data=data,
        database_url="sqlite://",
        public_address="127.0.0.1",
        tls=cert is None,
        tls_cert=cert,
        tls_key=key,
    )


def _files(folder: Path, clock: ManualClock, days_ago: int = 0) -> tuple[Path, Path, bytes]:
    """(certificate for localhost, its key, the authority's certificate)."""
    then = _moment(clock) - datetime.timedelta(days=days_ago)
    authority = Authority.make("Example root", then)
    certificate, private = authority.issue(["localhost"], then)
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(certificate + authority.certificate)
    key.write_bytes(private)
    return cert, key, authority.certificate


@contextlib.contextmanager
def _server(context: ssl.SSLContext) -> Iterator[int]:
    """A server that takes TLS connections; the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with (
                        contextlib.suppress(OSError),
                        context.wrap_socket(connection, server_side=True) as client,
                    ):
                        client.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _serial(port: int, context: ssl.SSLContext, host: str = "localhost") -> str:
    """The serial number of the certificate that is presented; raises ssl.SSLError where it is not
    trusted."""
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw, server_hostname=host) as connection,
    ):
        certificate = connection.getpeercert()
        assert certificate
        return str(certificate["serialNumber"])


def test_a_client_with_the_fingerprint_trusts_this_yard_and_no_other(tmp_path: Path) -> None:
    clock = _clock()
    settings = _settings(tmp_path)
    door = DoorCertificate(settings, clock)
    fingerprint = pin_of(settings, clock)
    assert fingerprint is not None
    with _server(door.context) as port:
        url = f"https://127.0.0.1:{port}"
        authority = trust.fetch_authority(url, fingerprint)
        assert authority.encode() == (tmp_path / "tls" / "ca.pem").read_bytes()
        _serial(port, trust.context(authority=authority), "127.0.0.1")
        with pytest.raises(ssl.SSLCertVerificationError):
            _serial(port, trust.context(authority=authority), "evil.example")
        with pytest.raises(ssl.SSLCertVerificationError):
            _serial(port, trust.context())
        other = f"sha256:{'0' * 64}"
        with pytest.raises(PodyardError, match=f"presents {fingerprint}, not {other}") as refused:
            trust.fetch_authority(url, other)
        assert refused.value.code is Code.UNAUTHENTICATED


def test_the_authority_stays_and_its_key_is_secret(tmp_path: Path) -> None:
    clock = _clock()
    first = yard_authority(tmp_path / "tls", clock)
    clock.advance(1000 * DAY)
    assert yard_authority(tmp_path / "tls", clock) == first
    assert [(tmp_path / "tls" / name).stat().st_mode & 0o777 for name in ("ca.pem", "ca.key")] == [
        0o600,
        0o600,
    ]
    clock.advance(2700 * DAY)
    with pytest.raises(PodyardError, match=r"expired at .*; restore .*, or delete it"):
        yard_authority(tmp_path / "tls", clock)


def test_a_certificate_made_here_is_renewed_in_time(tmp_path: Path) -> None:
    clock = _clock()
    door = DoorCertificate(_settings(tmp_path), clock)
    ca = trust.context(tmp_path / "tls" / "ca.pem")
    with _server(door.context) as port:
        first = _serial(port, ca)
        clock.advance((VALID_DAYS - 31) * DAY)
        door.look()
        assert _serial(port, ca) == first
        clock.advance(2 * DAY)
        door.look()
        # Renewed: it is valid from that moment on, which for the client's clock is two months
        # ahead.
        with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
            _serial(port, ca)


def test_replaced_files_are_taken_and_broken_ones_are_not(tmp_path: Path) -> None:
    clock = _clock()
    cert, key, root = _files(tmp_path, clock)
    door = DoorCertificate(_settings(tmp_path, cert, key), clock)
    with _server(door.context) as port:
        first = _serial(port, trust.context(authority=root.decode()))
        good = cert.read_bytes(), key.read_bytes()
        cert.write_text("half a certificate")
        door.look()
        assert _serial(port, trust.context(authority=root.decode())) == first
        cert.write_bytes(good[0])
        _, _, renewed = _files(tmp_path, clock)
        door.look()
        assert _serial(port, trust.context(authority=renewed.decode())) != first


def test_files_that_no_client_would_accept_are_refused(tmp_path: Path) -> None:
    clock = _clock()
    cert, key, _ = _files(tmp_path, clock)
    (tmp_path / "other").mkdir()
    _, other_key, _ = _files(tmp_path / "other", clock)
    (tmp_path / "old").mkdir()
    old_cert, old_key, _ = _files(tmp_path / "old", clock, days_ago=VALID_DAYS + 1)
    text = tmp_path / "text"
    text.write_text("no PEM")
    for found, private, why in (
        (cert, other_key, f"the key in {other_key} does not match the certificate in {cert}"),
        (old_cert, old_key, f"the certificate in {old_cert} expired at "),
        (text, key, f"{text} holds no certificate in PEM"),
        (cert, text, f"{text} holds no private key in PEM"),
        (tmp_path / "none", key, f"--tls-cert: cannot read {tmp_path / 'none'}: No such file"),
        (cert, tmp_path, f"--tls-key: cannot read {tmp_path}: Is a directory"),
    ):
        with pytest.raises(PodyardError) as refused:
            DoorCertificate(_settings(tmp_path, found, private), clock)
        assert refused.value.message.startswith(why)


def test_only_a_root_in_the_file_is_pinned(tmp_path: Path) -> None:
    clock = _clock()
    cert, key, root = _files(tmp_path, clock)
    expected = trust.fingerprint(ssl.PEM_cert_to_DER_cert(root.decode()))
    assert pin_of(_settings(tmp_path, cert, key), clock) == expected
    cert.write_bytes(cert.read_bytes().replace(root, b""))
    assert pin_of(_settings(tmp_path, cert, key), clock) is None


@pytest.mark.parametrize("text", ["", "sha256:12", "md5:" + "0" * 64, "sha256:" + "g" * 64])
def test_a_fingerprint_has_one_form(text: str) -> None:
    with pytest.raises(PodyardError, match="must be sha256: and 64 hexadecimal digits"):
        trust.fetch_authority("https://127.0.0.1:1", text)


def test_a_file_to_trust_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no PEM")
    for name, why in (("ca.pem", "holds no certificate in PEM"), ("none.pem", "cannot read")):
        with pytest.raises(PodyardError, match=why):
            trust.context_of_environment("https://localhost", {"PODYARD_CA": str(tmp_path / name)})
