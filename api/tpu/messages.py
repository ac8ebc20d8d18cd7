"""The messages of Google's wire that clients send (v2). Field names and enum numbers: the Cloud TPU API v2's discovery
document. Both JSON spellings are read (camelCase and snake_case), enums as text or number, int64 as text or number.
Output-only fields are taken and left aside, as Google's server does; a name that no version knows is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

ACCELERATOR_CONFIG_TYPES: Mapping[str, int] = {
    "TYPE_UNSPECIFIED": 0,
    "V2": 2,
    "V3": 4,
    "V4": 7,
    "V5LITE_POD": 9,
    "V5P": 10,
    "V6E": 11,
}
DISK_MODES: Mapping[str, int] = {"DISK_MODE_UNSPECIFIED": 0, "READ_WRITE": 1, "READ_ONLY": 2}


def _enum(names: Mapping[str, int]) -> Any:
    by_number = {number: name for name, number in names.items()}

    def check(value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            if value not in by_number:
                raise ValueError(f"{value} is no number of this enum")
            return by_number[value]
        if isinstance(value, str) and value not in names:
            raise ValueError(f"{value!r} is none of {', '.join(names)}")
        return value

    return BeforeValidator(check)


class _Message(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    def given(self) -> dict[str, Any]:
        """What the client set, in the wire's camelCase; booleans that are false vanish, as in Google's answers."""
        dumped = self.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
        return {name: value for name, value in dumped.items() if value is not False}


class AcceleratorConfig(_Message):
    type: Annotated[str, _enum(ACCELERATOR_CONFIG_TYPES)] = "TYPE_UNSPECIFIED"
    topology: str = ""


class NetworkConfig(_Message):
    network: str = ""
    subnetwork: str = ""
    enable_external_ips: bool = False
    can_ip_forward: bool = False
    queue_count: int = 0


class ServiceAccount(_Message):
    email: str = ""
    scope: list[str] = Field(default_factory=list)


class SchedulingConfig(_Message):
    preemptible: bool = False
    reserved: bool = False
    spot: bool = False


class ShieldedInstanceConfig(_Message):
    enable_secure_boot: bool = False


class AttachedDisk(_Message):
    source_disk: str
    mode: Annotated[str, _enum(DISK_MODES)] = "DISK_MODE_UNSPECIFIED"


class BootDiskConfig(_Message):
    customer_encryption_key: dict[str, Any] | None = None
    enable_confidential_compute: bool = False


class NodeMessage(_Message):
    """google.cloud.tpu.v2.Node as clients send it."""

    name: str = ""
    description: str | None = None
    accelerator_type: str | None = None
    accelerator_config: AcceleratorConfig | None = None
    runtime_version: str | None = None
    network_config: NetworkConfig | None = None
    network_configs: list[NetworkConfig] | None = None
    cidr_block: str | None = None
    service_account: ServiceAccount | None = None
    scheduling_config: SchedulingConfig | None = None
    labels: dict[str, str] | None = None
    metadata: dict[str, str] | None = None
    tags: list[str] | None = None
    data_disks: list[AttachedDisk] | None = None
    shielded_instance_config: ShieldedInstanceConfig | None = None
    boot_disk_config: BootDiskConfig | None = None
    autocheckpoint_enabled: bool | None = None
    # Output only: clients that send a node back as they got it send these too.
    state: str | int | None = None
    health: str | int | None = None
    health_description: str | None = None
    create_time: str | None = None
    network_endpoints: list[dict[str, Any]] | None = None
    id: str | int | None = None
    api_version: str | int | None = None
    symptoms: list[dict[str, Any]] | None = None
    queued_resource: str | None = None
    multislice_node: bool | None = None
    upcoming_maintenance: dict[str, Any] | None = None
    protection_tier: str | int | None = None


class EmptyMessage(_Message):
    """The body of `:stop`, `:start`, `:cancel`: some clients repeat the name in it."""

    name: str = ""
