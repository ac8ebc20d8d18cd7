"""gcloud's own folder in a data folder, as `gcloud auth login` and `gcloud config set` leave it.

The caller's account is signed in; project and zone are settings that those commands change.

Source: Google Cloud SDK, core/credentials/creds.py (credentials.db) and store.py (the file that
gsutil reads), core/configurations.
"""

from __future__ import annotations

import configparser
import contextlib
import dataclasses
import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from podyard.base.files import write_atomically

TOKEN_HOST = "https://oauth2.googleapis.com/token"  # answered by the proxy of `podyard up`
AUTHORIZATION_PATH = "/o/oauth2/auth"
_CLIENT = "podyard"  # id and secret of the client: gcloud wants some, Podyard asks for none
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_WAIT_SECONDS = 2.0  # for a gcloud that holds the database
_TABLE = "CREATE TABLE IF NOT EXISTS credentials (account_id TEXT PRIMARY KEY, value BLOB)"
# Variables that hide what the folder says, or what `gcloud auth login` leaves there.
_HIDING = ("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", "CLOUDSDK_CORE_PROJECT", "CLOUDSDK_COMPUTE_ZONE")


@dataclasses.dataclass(frozen=True, slots=True)
class GcloudAccount:
    """The person that gcloud acts as, with the project and the zone that it begins with."""

    email: str
    token: str
    project: str
    zone: str


def sign_in(folder: Path, account: GcloudAccount) -> None:
    """Sign the account in. Its project and zone, and that it is the active one, are written only
    where the folder has none. Raises OSError, sqlite3.Error."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _store(folder / "credentials.db", account)
    boto = folder / "legacy_credentials" / account.email / ".boto"
    _write(
        boto,
        f"[OAuth2]\nclient_id = {_CLIENT}\nclient_secret = {_CLIENT}\n\n"
        f"[Credentials]\ngs_oauth2_refresh_token = {account.token}\n",
    )
    active = folder / "active_config"
    if not active.exists():  # without it gcloud reads no configuration
        active.write_text("default", encoding="utf-8")
    name = active.read_text(encoding="utf-8").strip()
    path = folder / "configurations" / f"config_{Path(name).name}"
    settings = configparser.RawConfigParser()
    settings.read(path, encoding="utf-8")
    defaults = {
        ("core", "account"): account.email,
        ("core", "project"): account.project,
        ("compute", "zone"): account.zone,
    }
    missing = {at: value for at, value in defaults.items() if not settings.has_option(*at)}
    if not missing:
        return
    for (section, option), value in missing.items():
        if not settings.has_section(section):
            settings.add_section(section)
        settings.set(section, option, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        settings.write(file)


def with_account(
    variables: Mapping[str, str], url: str, named: Mapping[str, str]
) -> dict[str, str]:
    """Return gcloud's variables for a folder with an account; `named` ones win over its
    settings."""
    others = {name: value for name, value in variables.items() if name not in _HIDING}
    return {
        **others,
        **named,
        "CLOUDSDK_AUTH_AUTH_HOST": f"{url}{AUTHORIZATION_PATH}",
        "CLOUDSDK_AUTH_TOKEN_HOST": TOKEN_HOST,
        # Without it gcloud's sign-in refuses a page in the clear, also on loopback.
        "OAUTHLIB_INSECURE_TRANSPORT": "1",
    }


def _store(path: Path, account: GcloudAccount) -> None:
    value = json.dumps(
        {
            "type": "authorized_user",
            "client_id": _CLIENT,
            "client_secret": _CLIENT,
            "refresh_token": account.token,
            "revoke_uri": "https://oauth2.googleapis.com/revoke",
            "scopes": _SCOPES,
            "token_uri": TOKEN_HOST,
            "universe_domain": "googleapis.com",
        }
    )
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    with contextlib.closing(sqlite3.connect(path, timeout=_WAIT_SECONDS)) as store, store:
        store.execute(_TABLE)
        row = store.execute(
            "SELECT value FROM credentials WHERE account_id = ?", (account.email,)
        ).fetchone()
        if row is not None and row[0] == value:
            return
        store.execute("REPLACE INTO credentials VALUES (?, ?)", (account.email, value))
    # Access tokens of an older token are of no use.
    path.with_name("access_tokens.db").unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, text.encode())
