"""The permissions of Google's predefined roles, as far as they are about what Podyard serves.

Names and what each role may do: cloud.google.com/iam/docs/roles-permissions. Permissions on what
Podyard has no answer for are left out: a test of permissions then says that they are missing.
"""

from __future__ import annotations

from collections.abc import Mapping

# `podyard.projects.get` lets the project show in the lists of Podyard's own REST and console.
PROJECT_VIEW = frozenset({"resourcemanager.projects.get", "podyard.projects.get"})
SERVICES_VIEW = frozenset(
    {"serviceusage.services.get", "serviceusage.services.list", "serviceusage.services.use"}
)
ACCOUNTS_VIEW = frozenset({"iam.serviceAccounts.get", "iam.serviceAccounts.list"})
ROLES_VIEW = frozenset({"iam.roles.get", "iam.roles.list"})
LOGS_VIEW = frozenset({"logging.logEntries.list", "logging.logs.list"})
SERIES_VIEW = frozenset(
    {"monitoring.timeSeries.list", "monitoring.metricDescriptors.list",
     "monitoring.metricDescriptors.get"}
)  # fmt: skip
LOGS_WRITE = frozenset({"logging.logEntries.create"})
SERVICES_ENABLE = frozenset({"serviceusage.services.enable", "serviceusage.services.disable"})
POLICY_VIEW = frozenset({"resourcemanager.projects.getIamPolicy"})
POLICY_EDIT = frozenset({"resourcemanager.projects.setIamPolicy"})
ACT_AS = "iam.serviceAccounts.actAs"
ACCOUNTS_EDIT = frozenset(
    {"iam.serviceAccounts.create", "iam.serviceAccounts.delete", "iam.serviceAccounts.update",
     "iam.serviceAccounts.getIamPolicy", "iam.serviceAccounts.setIamPolicy"}
)  # fmt: skip
KEYS_EDIT = frozenset(
    {"iam.serviceAccountKeys.create", "iam.serviceAccountKeys.delete",
     "iam.serviceAccountKeys.get", "iam.serviceAccountKeys.list"}
)  # fmt: skip
# The same of Podyard's own REST, which `podyard auth key` calls.
OWN_KEYS = frozenset({"podyard.keys.create", "podyard.keys.list", "podyard.keys.delete"})

_COMPUTE_KINDS = (
    "addresses", "autoscalers", "disks", "firewalls", "instanceGroupManagers", "instanceGroups",
    "instanceTemplates", "instances", "networks", "reservations", "resourcePolicies", "routes",
    "routers", "subnetworks",
)  # fmt: skip
_COMPUTE_CATALOGUE = (
    "acceleratorTypes", "diskTypes", "globalOperations", "images", "machineTypes",
    "regionOperations", "regions", "zoneOperations", "zones",
)  # fmt: skip
COMPUTE_VIEW = frozenset(
    {
        "compute.projects.get",
        "compute.instances.getGuestAttributes",
        "compute.networks.getEffectiveFirewalls",
        *(
            f"compute.{kind}.{verb}"
            for kind in (*_COMPUTE_KINDS, *_COMPUTE_CATALOGUE)
            for verb in ("get", "list")
        ),
    }
)
COMPUTE_EDIT = frozenset(
    {
        *(
            f"compute.{kind}.{verb}"
            for kind in _COMPUTE_KINDS
            for verb in ("create", "delete", "update", "use")
        ),
        *(
            f"compute.instances.{verb}"
            for verb in (
                "start", "stop", "reset", "setLabels", "setMetadata", "setTags",
                "setMachineType", "setScheduling", "setServiceAccount", "attachDisk",
                "detachDisk", "simulateMaintenanceEvent",
            )
        ),
        "compute.instances.getSerialPortOutput",
        "compute.disks.resize", "compute.disks.setLabels", "compute.images.useReadOnly",
        "compute.instanceTemplates.useReadOnly", "compute.networks.updatePolicy",
        "compute.subnetworks.useExternalIp", "compute.globalOperations.delete",
        "compute.regionOperations.delete", "compute.zoneOperations.delete",
        "compute.projects.setCommonInstanceMetadata",
    }
)  # fmt: skip
TUNNEL = "iap.tunnelInstances.accessViaIAP"
OBJECTS_VIEW = frozenset({"storage.objects.get", "storage.objects.list"})
OBJECTS_EDIT = OBJECTS_VIEW | {
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.update",
}
BUCKETS_EDIT = frozenset(
    f"storage.buckets.{verb}" for verb in ("get", "list", "create", "delete", "update")
)

# What every member of a project may see of it here.
COMMON_VIEW = PROJECT_VIEW | SERVICES_VIEW | ROLES_VIEW | LOGS_VIEW | SERIES_VIEW | COMPUTE_VIEW
ADMINISTRATION = (
    POLICY_VIEW
    | POLICY_EDIT
    | ACCOUNTS_VIEW
    | ACCOUNTS_EDIT
    | KEYS_EDIT
    | SERVICES_ENABLE
    | {ACT_AS, TUNNEL, "logging.privateLogEntries.list"}
)

GOOGLE_ROLES: Mapping[str, frozenset[str]] = {
    "browser": PROJECT_VIEW | POLICY_VIEW,
    "compute.admin": PROJECT_VIEW | SERVICES_VIEW | COMPUTE_VIEW | COMPUTE_EDIT,
    "compute.viewer": PROJECT_VIEW | SERVICES_VIEW | COMPUTE_VIEW,
    "iap.tunnelResourceAccessor": frozenset({TUNNEL}),
    "iam.roleViewer": PROJECT_VIEW | POLICY_VIEW | ROLES_VIEW,
    "iam.serviceAccountAdmin": PROJECT_VIEW | ACCOUNTS_VIEW | ACCOUNTS_EDIT,
    "iam.serviceAccountKeyAdmin": PROJECT_VIEW | ACCOUNTS_VIEW | KEYS_EDIT | OWN_KEYS,
    "iam.serviceAccountUser": PROJECT_VIEW | ACCOUNTS_VIEW | {ACT_AS},
    "logging.logWriter": LOGS_WRITE,
    "logging.viewer": PROJECT_VIEW | LOGS_VIEW,
    "logging.privateLogViewer": PROJECT_VIEW | LOGS_VIEW | {"logging.privateLogEntries.list"},
    "resourcemanager.projectIamAdmin": PROJECT_VIEW | POLICY_VIEW | POLICY_EDIT,
    "serviceusage.serviceUsageAdmin": PROJECT_VIEW | SERVICES_VIEW | SERVICES_ENABLE,
    "serviceusage.serviceUsageConsumer": PROJECT_VIEW | SERVICES_VIEW,
    "storage.admin": PROJECT_VIEW | OBJECTS_EDIT | BUCKETS_EDIT,
    "storage.objectAdmin": PROJECT_VIEW | OBJECTS_EDIT,
    "storage.objectCreator": frozenset({"storage.objects.create"}),
    "storage.objectViewer": PROJECT_VIEW | OBJECTS_VIEW,
}

TITLES: Mapping[str, str] = {
    "billing.viewer": "Billing Account Viewer",
    "browser": "Browser",
    "compute.admin": "Compute Admin",
    "compute.viewer": "Compute Viewer",
    "editor": "Editor",
    "iam.roleViewer": "Role Viewer",
    "iam.serviceAccountAdmin": "Service Account Admin",
    "iam.serviceAccountKeyAdmin": "Service Account Key Admin",
    "iam.serviceAccountUser": "Service Account User",
    "iap.tunnelResourceAccessor": "IAP-secured Tunnel User",
    "jobs.runner": "Podyard Job Runner",
    "logging.logWriter": "Logs Writer",
    "logging.privateLogViewer": "Private Logs Viewer",
    "logging.viewer": "Logs Viewer",
    "monitoring.viewer": "Monitoring Viewer",
    "owner": "Owner",
    "resourcemanager.projectIamAdmin": "Project IAM Admin",
    "serviceusage.serviceUsageAdmin": "Service Usage Admin",
    "serviceusage.serviceUsageConsumer": "Service Usage Consumer",
    "storage.admin": "Storage Admin",
    "storage.objectAdmin": "Storage Object Admin",
    "storage.objectCreator": "Storage Object Creator",
    "storage.objectUser": "Storage Object User",
    "storage.objectViewer": "Storage Object Viewer",
    "tpu.admin": "TPU Admin",
    "tpu.viewer": "TPU Viewer",
    "viewer": "Viewer",
}
