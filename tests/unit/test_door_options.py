"""Which options of `podyard up` open a port to other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podyard.base.errors import Code, PodyardError
from podyard.settings import Settings, from_environment
from podyard.stack.door_options import with_door

FILES = {"tls_cert": Path("/x/cert.pem"), "tls_key": Path("/x/key.pem")}


def _settings(**fields: Any) -> Settings:
    return Settings(data=Path("/x"), database_url="sqlite:////x/podyard.db", **fields)


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_tls_and_opens_no_door(bind: str) -> None:
    found = with_door(_settings(bind_address=bind))
    assert (found.bind_address, found.public_address) == (bind, None)


@pytest.mark.parametrize(
    "fields", [{"tls": True}, FILES, {"behind_proxy": True, "public_url": "https://tpu.example"}]
)
def test_beyond_loopback_only_the_door_is_opened(fields: dict[str, Any]) -> None:
    found = with_door(_settings(bind_address="0.0.0.0", **fields))
    assert (found.bind_address, found.public_address) == ("127.0.0.1", "0.0.0.0")


def test_a_door_may_be_on_loopback_too() -> None:
    found = with_door(_settings(bind_address="127.0.0.2", tls=True))
    assert (found.bind_address, found.public_address) == ("127.0.0.2", "127.0.0.2")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"bind_address": "0.0.0.0"}, "--bind 0.0.0.0 would take passwords and tokens"),
        ({"bind_address": "::"}, "add --tls"),
        ({"bind_address": "192.0.2.1"}, "or --behind-proxy"),
        ({"bind_address": "tpu.example", "tls": True}, "must be an IP address of this machine"),
        ({"tls": True, **FILES}, "--tls and --tls-cert exclude each other"),
        ({"tls": True, "behind_proxy": True, "public_url": "https://a"}, "exclude each other"),
        ({"tls_cert": Path("/x/cert.pem")}, "belong together"),
        ({"tls_key": Path("/x/key.pem")}, "belong together"),
        ({"behind_proxy": True}, "--behind-proxy needs --public-url"),
        ({"public_url": "https://a"}, "--public-url needs --tls"),
        ({"tls": True, "public_url": "http://a"}, "must be https, a host and a port only"),
        ({"tls": True, "public_url": "https://a/b"}, "a host and a port only"),
        ({"tls": True, "public_url": "https://u@a"}, "a host and a port only"),
        ({"tls": True, "public_url": "https://a:x"}, "is not a URL"),
        ({"tls": True, "public_url": "tpu.example"}, "must be https"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(PodyardError) as refused:
        with_door(_settings(**fields))
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert text in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    "fields", [{"tls": True}, FILES, {"behind_proxy": True, "public_url": "http://tpu.example"}]
)
def test_children_get_the_same_door_from_their_environment(fields: dict[str, Any]) -> None:
    found = with_door(_settings(bind_address="0.0.0.0", public_port=9443, **fields))
    assert from_environment(found.environment()) == found
