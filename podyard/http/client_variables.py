"""The variables that lead clients to a Podyard: as `podyard env` prints them, and as the console
shows them."""

from __future__ import annotations

from podyard.domain.host import discovery_url
from podyard.http.google import API_NAMES, API_PREFIX

# APIs that gcloud asks on its way elsewhere, so that it finds them even where its proxy is not
# used.
_OTHER_APIS = (*API_NAMES, "iamcredentials", "oslogin")


def own_variables(url: str, token: str, project: str, zone: str) -> dict[str, str]:
    """Podyard's own: its command line, its Python client, curl."""
    return {
        "PODYARD_URL": url,
        "PODYARD_TOKEN": token,
        "PODYARD_PROJECT": project,
        "PODYARD_LOCATION": zone,
    }


def gcloud_variables(url: str, token_file: str, project: str, zone: str) -> dict[str, str]:
    """gcloud's settings, but those of its proxy. `token_file`: a file that holds the token."""
    return {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{url}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}/",
        **{
            f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name.upper()}": (
                f"{url}{API_PREFIX}{name}.googleapis.com/"
            )
            for name in _OTHER_APIS
        },
        "CLOUDSDK_AUTH_TOKEN_HOST": f"{url}/token",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": token_file,
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_COMPUTE_ZONE": zone,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        # What gcloud sends by itself: usage reports, looks for updates, and whether this is one of
        # Google's machines.
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "0",
    }


def library_variables(url: str, token: str, project: str) -> dict[str, str]:
    """Of Terraform's provider, Google's libraries and TensorFlow."""
    return {
        "GOOGLE_TPU_V2_CUSTOM_ENDPOINT": f"{url}/v2alpha1/",
        "GOOGLE_OAUTH_ACCESS_TOKEN": token,
        "GOOGLE_CLOUD_PROJECT": project,
        "TPU_API_DISCOVERY_URL": discovery_url(url),
    }
