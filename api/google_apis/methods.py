"""The methods that are served of six APIs: routes, permissions and discovery documents are made
from this table, so that a document lists what is served and nothing else.

Names, paths and messages: Google's discovery documents (cloudresourcemanager v1 and v3 revision
20261107, iam v1 20261023, serviceusage v1 20260921, cloudbilling v1 20260901, logging v2 20260911,
monitoring v3 20260129). A permission is the one that Google asks for, unless the sentence says
more; `-` is none beyond a credential, or one that the handler checks itself.

An API is a line `= name | version | title`. A method is a line `id | verb | path | query | request
| answer | permission | sentence`. In a path `{name=projects/*}` is one field over several parts,
and `{projectId}` one part. `query` names the parameters with their types (string without one).
`request` is the message of the body, `-` for none.
"""

from __future__ import annotations

TABLE = """
= cloudresourcemanager | v1 | Cloud Resource Manager API
projects.get | GET | v1/projects/{projectId} | | - | Project | - | Returns a project; 403 for one that is not there.
projects.list | GET | v1/projects | filter pageSize:int32 pageToken | - | ListProjectsResponse | - | Lists the projects that the caller may see.
projects.create | POST | v1/projects | | Project | Operation | podyard.projects.create | Creates a project.
projects.getIamPolicy | POST | v1/projects/{resource}:getIamPolicy | | GetIamPolicyRequest | Policy | resourcemanager.projects.getIamPolicy | Returns who has which role in a project.
projects.setIamPolicy | POST | v1/projects/{resource}:setIamPolicy | | SetIamPolicyRequest | Policy | resourcemanager.projects.setIamPolicy | Sets who has which role in a project.
projects.testIamPermissions | POST | v1/projects/{resource}:testIamPermissions | | TestIamPermissionsRequest | TestIamPermissionsResponse | - | Returns which of the permissions the caller has.
projects.getAncestry | POST | v1/projects/{projectId}:getAncestry | | GetAncestryRequest | GetAncestryResponse | resourcemanager.projects.get | Returns the project alone: there are no folders and no organizations.
operations.get | GET | v1/{name=operations/*} | | - | Operation | - | Returns an operation that has created a project.
= cloudresourcemanager | v3 | Cloud Resource Manager API
projects.get | GET | v3/{name=projects/*} | | - | Project | - | Returns a project; 403 for one that is not there.
projects.search | GET | v3/projects:search | query pageSize:int32 pageToken | - | SearchProjectsResponse | - | Lists the projects that the caller may see.
projects.getIamPolicy | POST | v3/{resource=projects/*}:getIamPolicy | | GetIamPolicyRequest | Policy | resourcemanager.projects.getIamPolicy | Returns who has which role in a project.
projects.setIamPolicy | POST | v3/{resource=projects/*}:setIamPolicy | | SetIamPolicyRequest | Policy | resourcemanager.projects.setIamPolicy | Sets who has which role in a project.
projects.testIamPermissions | POST | v3/{resource=projects/*}:testIamPermissions | | TestIamPermissionsRequest | TestIamPermissionsResponse | - | Returns which of the permissions the caller has.
= iam | v1 | Identity and Access Management (IAM) API
roles.list | GET | v1/roles | parent view showDeleted:bool pageSize:int32 pageToken | - | ListRolesResponse | - | Lists the predefined roles that can be granted.
roles.get | GET | v1/{name=roles/*} | | - | Role | - | Returns a predefined role with its permissions.
roles.queryGrantableRoles | POST | v1/roles:queryGrantableRoles | | QueryGrantableRolesRequest | QueryGrantableRolesResponse | - | Lists the roles that can be granted on a project or a service account.
projects.roles.list | GET | v1/{parent=projects/*}/roles | view showDeleted:bool pageSize:int32 pageToken | - | ListRolesResponse | iam.roles.list | Lists nothing: there are no custom roles.
projects.serviceAccounts.create | POST | v1/{name=projects/*}/serviceAccounts | | CreateServiceAccountRequest | ServiceAccount | iam.serviceAccounts.create | Creates a service account.
projects.serviceAccounts.list | GET | v1/{name=projects/*}/serviceAccounts | pageSize:int32 pageToken | - | ListServiceAccountsResponse | iam.serviceAccounts.list | Lists the service accounts of a project.
projects.serviceAccounts.get | GET | v1/{name=projects/*/serviceAccounts/*} | | - | ServiceAccount | iam.serviceAccounts.get | Returns a service account.
projects.serviceAccounts.patch | PATCH | v1/{name=projects/*/serviceAccounts/*} | | PatchServiceAccountRequest | ServiceAccount | iam.serviceAccounts.update | Changes displayName and description.
projects.serviceAccounts.delete | DELETE | v1/{name=projects/*/serviceAccounts/*} | | - | Empty | iam.serviceAccounts.delete | Deletes a service account with its keys and roles.
projects.serviceAccounts.getIamPolicy | POST | v1/{resource=projects/*/serviceAccounts/*}:getIamPolicy | options.requestedPolicyVersion:int32 | - | Policy | iam.serviceAccounts.getIamPolicy | Returns who may act as a service account.
projects.serviceAccounts.setIamPolicy | POST | v1/{resource=projects/*/serviceAccounts/*}:setIamPolicy | | SetIamPolicyRequest | Policy | iam.serviceAccounts.setIamPolicy | Sets who may act as a service account.
projects.serviceAccounts.testIamPermissions | POST | v1/{resource=projects/*/serviceAccounts/*}:testIamPermissions | | TestIamPermissionsRequest | TestIamPermissionsResponse | - | Returns which of the permissions the caller has on a service account.
projects.serviceAccounts.keys.create | POST | v1/{name=projects/*/serviceAccounts/*}/keys | | CreateServiceAccountKeyRequest | ServiceAccountKey | iam.serviceAccountKeys.create | Creates a key; its private half is shown this once.
projects.serviceAccounts.keys.list | GET | v1/{name=projects/*/serviceAccounts/*}/keys | keyTypes[] | - | ListServiceAccountKeysResponse | iam.serviceAccountKeys.list | Lists the keys of a service account.
projects.serviceAccounts.keys.get | GET | v1/{name=projects/*/serviceAccounts/*/keys/*} | publicKeyType | - | ServiceAccountKey | iam.serviceAccountKeys.get | Returns a key.
projects.serviceAccounts.keys.delete | DELETE | v1/{name=projects/*/serviceAccounts/*/keys/*} | | - | Empty | iam.serviceAccountKeys.delete | Deletes a key; access tokens that were made with it end.
= serviceusage | v1 | Service Usage API
services.get | GET | v1/{name=projects/*/services/*} | | - | GoogleApiServiceusageV1Service | serviceusage.services.get | Returns a service and whether it is enabled.
services.list | GET | v1/{parent=projects/*}/services | filter pageSize:int32 pageToken | - | ListServicesResponse | serviceusage.services.list | Lists services; those that Podyard serves are enabled.
services.batchGet | GET | v1/{parent=projects/*}/services:batchGet | names[] | - | BatchGetServicesResponse | serviceusage.services.get | Returns several services.
services.enable | POST | v1/{name=projects/*/services/*}:enable | | EnableServiceRequest | Operation | serviceusage.services.enable | Enables a service that Podyard serves, which it is already.
services.batchEnable | POST | v1/{parent=projects/*}/services:batchEnable | | BatchEnableServicesRequest | Operation | serviceusage.services.enable | Enables several services.
services.disable | POST | v1/{name=projects/*/services/*}:disable | | DisableServiceRequest | Operation | serviceusage.services.disable | Is refused: what is served cannot be disabled.
operations.get | GET | v1/{name=operations/*} | | - | Operation | - | Returns an operation, which is done.
= cloudbilling | v1 | Cloud Billing API
projects.getBillingInfo | GET | v1/{name=projects/*}/billingInfo | | - | ProjectBillingInfo | - | Returns the billing account that pays for a project.
billingAccounts.list | GET | v1/billingAccounts | filter pageSize:int32 pageToken parent | - | ListBillingAccountsResponse | - | Lists the billing accounts that the caller may see.
billingAccounts.get | GET | v1/{name=billingAccounts/*} | | - | BillingAccount | - | Returns a billing account.
= logging | v2 | Cloud Logging API
entries.write | POST | v2/entries:write | | WriteLogEntriesRequest | WriteLogEntriesResponse | - | Writes log entries of one project.
entries.list | POST | v2/entries:list | | ListLogEntriesRequest | ListLogEntriesResponse | - | Lists log entries.
projects.logs.list | GET | v2/{parent=projects/*}/logs | pageSize:int32 pageToken resourceNames[] | - | ListLogsResponse | logging.logs.list | Lists the logs that have entries.
= monitoring | v3 | Cloud Monitoring API
projects.metricDescriptors.list | GET | v3/{name=projects/*}/metricDescriptors | filter activeOnly:bool pageSize:int32 pageToken | - | ListMetricDescriptorsResponse | monitoring.metricDescriptors.list | Lists the metrics that there are.
projects.timeSeries.list | GET | v3/{name=projects/*}/timeSeries | filter interval.startTime interval.endTime aggregation.alignmentPeriod aggregation.perSeriesAligner aggregation.crossSeriesReducer aggregation.groupByFields[] orderBy view pageSize:int32 pageToken | - | ListTimeSeriesResponse | monitoring.timeSeries.list | Lists the points of a metric.
"""  # noqa: E501
