"""Secrets of users are unreadable where they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from podyard.base import sealing
from podyard.base.errors import PodyardError


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sealing, "_key", None)
    yield


def test_what_is_sealed_is_unreadable_and_comes_back(tmp_path: Path) -> None:
    sealing.use(tmp_path / "secrets.key")
    first, second = sealing.seal("hf_token"), sealing.seal("hf_token")
    assert first != second
    assert "hf_token" not in first
    assert (sealing.unseal(first), sealing.unseal(second)) == ("hf_token", "hf_token")
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600


def test_the_key_stays(tmp_path: Path) -> None:
    sealing.use(tmp_path / "secrets.key")
    sealed = sealing.seal("x")
    sealing.use(tmp_path / "secrets.key")
    assert sealing.unseal(sealed) == "x"


def test_plain_text_of_before_is_taken_as_it_is(tmp_path: Path) -> None:
    sealing.use(tmp_path / "secrets.key")
    assert sealing.unseal("plain") == "plain"


def test_a_text_that_looks_sealed_is_sealed_again(tmp_path: Path) -> None:
    sealing.use(tmp_path / "secrets.key")
    text = sealing.seal("x")
    assert sealing.unseal(sealing.seal(text)) == text


def test_another_key_or_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealing.use(tmp_path / "one.key")
    sealed = sealing.seal("x")
    sealing.use(tmp_path / "two.key")
    with pytest.raises(PodyardError, match=r"another secrets\.key"):
        sealing.unseal(sealed)
    monkeypatch.setattr(sealing, "_key", None)
    sealing.use(tmp_path / "none.key", make=False)
    with pytest.raises(PodyardError, match=r"no secrets\.key"):
        sealing.unseal(sealed)
    assert not (tmp_path / "none.key").exists()


def test_a_damaged_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secrets.key").write_bytes(b"short")
    with pytest.raises(PodyardError, match="is damaged"):
        sealing.use(tmp_path / "secrets.key")
