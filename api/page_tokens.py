"""Tokens of pages: what the next page begins after, and for signed ones of which list."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Sequence

from starlette.requests import Request

from podyard.base.errors import PodyardError, invalid
from podyard.http.context import platform

# Ray, SkyPilot and Terraform read one page only: it must hold what they may have
PAGE_SIZE_DEFAULT = 500
PAGE_SIZE_MAX = 1000
PAGE_SIGNATURE_CHARACTERS = 16  # 64 bits: guessing one takes longer than any list is worth


def page_token(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode()


def read_page_token(token: str | None) -> str | None:
    if not token:
        return None
    try:
        return base64.b64decode(token.encode(), b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise foreign_token() from None


def foreign_token() -> PodyardError:
    return invalid("invalid pageToken: use the nextPageToken of this list", "pageToken")


def page_token_of(request: Request, listed: Sequence[str], after: str) -> str:
    """A token that continues only the list that it was made for: `listed` says which one, and how
    it was asked for."""
    return page_token(f"{_signature(request, listed, after)}{after}")


def read_page_token_of(request: Request, listed: Sequence[str], token: str | None) -> str | None:
    """Return what a token of `page_token_of` stands for; raises INVALID_ARGUMENT for any other
    token."""
    text = read_page_token(token)
    if text is None:
        return None
    signature, after = text[:PAGE_SIGNATURE_CHARACTERS], text[PAGE_SIGNATURE_CHARACTERS:]
    if not hmac.compare_digest(signature.encode(), _signature(request, listed, after).encode()):
        raise foreign_token()
    return after


def _signature(request: Request, listed: Sequence[str], after: str) -> str:
    state = request.app.state
    if not hasattr(state, "page_key"):
        # The yard's own secret: tokens outlive a restart, and nobody outside can make one.
        state.page_key = platform(request).settings.token_path.read_bytes()
    text = json.dumps([*listed, after]).encode()
    return hmac.new(state.page_key, text, hashlib.sha256).hexdigest()[:PAGE_SIGNATURE_CHARACTERS]
