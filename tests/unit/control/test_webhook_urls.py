"""Which addresses webhooks may go to."""

from __future__ import annotations

import ipaddress

import pytest

from podyard.base.errors import BadRequest, Code, FieldViolation, PodyardError
from podyard.control.platform import webhook_urls
from podyard.settings import from_environment

ALWAYS_REFUSED = {
    "ftp://example.com/": "http or https",
    "file:///etc/passwd": "http or https",
    "http:///hook": "http or https",
    "http://example.com:0/": "http or https",
    "http://example.com:99999/": "not understood",
    "http://[::1/": "not understood",
    "http://user@example.com/": "a password",
    "http://user:secret@example.com/": "a password",
    "http://example.com/a b": "ASCII",
    "http://bücher.example/": "ASCII",
    "http://example.com/" + "a" * 2000: "2000 characters",
    "http://169.254.169.254/latest/meta-data": "metadata",
    "http://169.254.1.2/": "link-local",
    "http://[fe80::1]/": "link-local",
    "http://[fe80::1%25eth0]/": "link-local",
    "http://[fd00:ec2::254]/": "metadata",
    "http://[fd20:ce::254]/": "metadata",
    "http://100.100.100.200/": "metadata",
    "http://metadata.google.internal/computeMetadata/v1/": "metadata",
    "http://METADATA.google.internal./": "metadata",
    "http://[::ffff:169.254.169.254]/": "metadata",  # the same address in IPv6's clothes
    "http://[64:ff9b::a9fe:a9fe]/": "metadata",
    "http://[2002:a9fe:a9fe::1]/": "metadata",
    "http://2852039166/": "metadata",  # the same address as one number, which resolvers take
    "http://0xa9fea9fe/": "metadata",
    "http://0251.0376.0251.0376/": "metadata",
    "http://0.0.0.0/": "not the address of a machine",
    "http://[::]/": "not the address of a machine",
    "http://[::ffff:0.0.0.0]/": "not the address of a machine",
    "http://224.0.0.1/": "multicast",
    "http://[ff02::1]/": "multicast",
    "http://255.255.255.255/": "multicast",
}
OF_ONES_OWN = (
    "http://127.0.0.1:8080/hook",
    "http://127.1/",
    "http://localhost/",
    "http://yard.localhost/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://10.1.2.3/",
    "https://192.168.1.1/",
    "http://100.64.0.1/",
    "http://[fd12::1]/",
    "http://192.0.2.1/",
)
PUBLIC = (
    "https://example.com/hook?a=b",
    "http://8.8.8.8:8080/",
    "http://[2606:4700::1111]/",
    "https://xn--bcher-kva.de/",
)


def _why(url: str) -> str | None:
    try:
        webhook_urls.check(url, "actions")
    except PodyardError as error:
        assert error.code is Code.INVALID_ARGUMENT
        assert error.details == (BadRequest((FieldViolation("actions", error.message),)),)
        return error.message
    return None


@pytest.mark.parametrize("url", ALWAYS_REFUSED)
@pytest.mark.parametrize("allowed", ["any", "public"])
def test_what_no_receiver_has_is_refused_with_its_field(
    url: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODYARD_WEBHOOK_ADDRESSES", allowed)
    why = _why(url)
    assert why is not None
    assert why.startswith("actions: ")
    assert ALWAYS_REFUSED[url] in why


@pytest.mark.parametrize("url", OF_ONES_OWN)
def test_the_machines_own_network_is_for_a_yard_of_ones_own(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PODYARD_WEBHOOK_ADDRESSES", raising=False)
    assert _why(url) is None
    monkeypatch.setenv("PODYARD_WEBHOOK_ADDRESSES", "public")
    why = _why(url)
    assert why is not None
    assert "PODYARD_WEBHOOK_ADDRESSES" in why


@pytest.mark.parametrize("url", PUBLIC)
def test_the_public_internet_may_always_be_notified(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for allowed in ("any", "public"):
        monkeypatch.setenv("PODYARD_WEBHOOK_ADDRESSES", allowed)
        assert _why(url) is None


def test_what_a_name_stands_for_is_judged_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert webhook_urls.why_not(ipaddress.ip_address("fe80::1%eth0")) is not None
    assert webhook_urls.why_not(ipaddress.ip_address("127.0.0.1")) is None
    monkeypatch.setenv("PODYARD_WEBHOOK_ADDRESSES", "public")
    assert webhook_urls.why_not(ipaddress.ip_address("127.0.0.1")) is not None
    assert webhook_urls.why_not(ipaddress.ip_address("1.1.1.1")) is None


def test_the_setting_reaches_other_processes_and_a_wrong_one_is_refused() -> None:
    found = from_environment({"PODYARD_WEBHOOK_ADDRESSES": "public"})
    assert from_environment(found.environment()).webhook_addresses == "public"
    assert from_environment({}).webhook_addresses == "any"
    with pytest.raises(PodyardError, match="PODYARD_WEBHOOK_ADDRESSES is 'none'"):
        from_environment({"PODYARD_WEBHOOK_ADDRESSES": "none"})
