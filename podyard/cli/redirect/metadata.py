"""The metadata server that one `podyard run` shows its command: who calls, in which project and
zone.

Keys and forms are those of Google's (cloud.google.com/compute/docs/metadata), as google.auth and
cloud-tpu-client ask for them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from urllib.parse import parse_qs

METADATA_HOSTS = frozenset({"metadata.google.internal", "metadata", "169.254.169.254"})
ROOT = "/computeMetadata/v1/"
TOKEN_SECONDS = 3599  # a client that keeps it for an hour asks again; the token itself does not end
SCOPES = "https://www.googleapis.com/auth/cloud-platform"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclasses.dataclass(frozen=True, slots=True)
class Metadata:
    """The facts that the proxy tells as metadata server. `number` is the project's."""

    project: str
    number: str
    zone: str
    email: str
    token: str

    def answer(
        self, path: str, query: str, flavor: str | None, method: str = "GET"
    ) -> tuple[int, str, str]:
        """(HTTP status, body, media type)."""
        if method not in ("GET", "HEAD"):
            return 405, "", TEXT
        if path in ("", "/"):
            # how a client finds out whether there is a metadata server
            return 200, "computeMetadata/\n", TEXT
        if flavor != "Google":
            return 403, "Missing required header: Metadata-Flavor: Google\n", TEXT
        key = path.removeprefix(ROOT).rstrip("/")
        if not path.startswith(ROOT):
            return 404, "", TEXT
        asked = parse_qs(query)
        if key in ("instance/service-accounts/default", f"instance/service-accounts/{self.email}"):
            account = {"aliases": ["default"], "email": self.email, "scopes": [SCOPES]}
            if asked.get("recursive", [""])[-1].lower() == "true":  # oauth2client says `True`
                return 200, json.dumps(account), JSON
            return 200, "aliases\nemail\nscopes\ntoken\n", TEXT
        name = key.replace(
            f"instance/service-accounts/{self.email}/", "instance/service-accounts/default/"
        )
        if name == "instance/service-accounts/default/token":
            token = {
                "access_token": self.token,
                "expires_in": TOKEN_SECONDS,
                "token_type": "Bearer",
            }
            return 200, json.dumps(token), JSON
        found = self._values().get(name)
        return (404, "", TEXT) if found is None else (200, found, TEXT)

    def _values(self) -> Mapping[str, str]:
        return {
            "project/project-id": self.project,
            "project/numeric-project-id": self.number,
            "instance/zone": f"projects/{self.number}/zones/{self.zone}",
            "instance/service-accounts": f"default/\n{self.email}/\n",
            "instance/service-accounts/default/email": self.email,
            "instance/service-accounts/default/scopes": f"{SCOPES}\n",
            "instance/service-accounts/default/aliases": "default\n",
            "universe/universe-domain": "googleapis.com",
            "universe/universe_domain": "googleapis.com",
        }
