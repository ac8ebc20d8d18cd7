"""The messages of the methods, as Google's discovery documents have them, without the fields that
Podyard neither reads nor answers.

A message is a line with its name and a sentence. A field is a line `name | type | sentence`; types
are string, bool, int32, int64, double, bytes, timestamp, duration, map (of strings), any (an object
of any fields), or a message; `[]` behind it for a list. `?` behind a name: it is taken, and left
aside.
"""

from __future__ import annotations

TABLE = """
Empty: Nothing more to say.
Status: An error.
  code | int32 | The number of google.rpc.Code.
  message | string | The error in words.
  details | any[] | More about it.
Operation: Something that takes time; all of these are done at once.
  name | string | operations/ID.
  metadata | any | About the work.
  done | bool | Whether it is over.
  error | Status | Why it failed.
  response | any | Its result.
ResourceId: An ancestor of a project.
  type | string | project, folder or organization.
  id | string | Its id.
Project: A project.
  projectNumber | int64 | Its number.
  projectId | string | Its id.
  lifecycleState | string | ACTIVE.
  state | string | ACTIVE, as v3 says it.
  name | string | Its name; in v3 projects/NUMBER.
  displayName | string | Its name in v3.
  createTime | timestamp | When it was created.
  labels | map | Its labels.
  parent? | any | There are no folders and no organizations.
  etag | string | Changes with the project.
ListProjectsResponse: A page of projects.
  projects | Project[] | The projects.
  nextPageToken | string | Of the next page.
SearchProjectsResponse: A page of projects.
  projects | Project[] | The projects.
  nextPageToken | string | Of the next page.
GetAncestryRequest: Asks for the ancestors of a project.
Ancestor: An ancestor.
  resourceId | ResourceId | Which it is.
GetAncestryResponse: The ancestors of a project.
  ancestor | Ancestor[] | From the project on.
Expr: A condition.
  expression | string | In CEL.
  title | string | Its title.
  description | string | About it.
  location? | string | Where it is from.
Binding: A role and who has it.
  role | string | roles/NAME.
  members | string[] | user:EMAIL or serviceAccount:EMAIL.
  condition | Expr | Is refused.
Policy: Who has which role.
  version | int32 | 1; 0 and 3 are taken, too.
  bindings | Binding[] | The roles with their members.
  etag | string | Of the policy that was read.
  auditConfigs? | any[] | Left aside.
GetPolicyOptions: How the policy is wanted.
  requestedPolicyVersion | int32 | 0 to 3: without conditions all are the same.
GetIamPolicyRequest: Asks for a policy.
  options | GetPolicyOptions | How it is wanted.
SetIamPolicyRequest: Asks to set a policy.
  policy | Policy | The whole of it.
  updateMask | string | bindings,etag; a mask without bindings changes nothing.
TestIamPermissionsRequest: Asks which permissions the caller has.
  permissions | string[] | Names, without wildcards.
TestIamPermissionsResponse: Permissions of the caller.
  permissions | string[] | Those of the request that the caller has.
Role: A role.
  name | string | roles/NAME.
  title | string | In words.
  description | string | About it.
  includedPermissions | string[] | What it allows.
  stage | string | GA.
  etag | string | Changes with the role.
ListRolesResponse: A page of roles.
  roles | Role[] | The roles.
  nextPageToken | string | Of the next page.
QueryGrantableRolesRequest: Asks which roles can be granted on a resource.
  fullResourceName | string | //cloudresourcemanager.googleapis.com/projects/P or //iam.googleapis.com/projects/P/serviceAccounts/A.
  view | string | BASIC or FULL.
  pageSize | int32 | The most that one page may hold.
  pageToken | string | The nextPageToken of the page before.
QueryGrantableRolesResponse: A page of roles.
  roles | Role[] | The roles.
  nextPageToken | string | Of the next page.
ServiceAccount: A service account.
  name | string | projects/P/serviceAccounts/EMAIL.
  projectId | string | Its project.
  uniqueId | string | 21 digits.
  email | string | Its email.
  displayName | string | At most 100 bytes.
  description | string | At most 256 bytes.
  etag | string | Changes with the texts.
  oauth2ClientId | string | The same as uniqueId.
  disabled | bool | Never.
CreateServiceAccountRequest: Asks for a new service account.
  accountId | string | The part of the email before the @.
  serviceAccount | ServiceAccount | Its texts.
PatchServiceAccountRequest: Asks to change a service account.
  serviceAccount | ServiceAccount | The new texts.
  updateMask | string | display_name, description.
ListServiceAccountsResponse: A page of service accounts.
  accounts | ServiceAccount[] | The accounts.
  nextPageToken | string | Of the next page.
CreateServiceAccountKeyRequest: Asks for a new key.
  privateKeyType | string | TYPE_GOOGLE_CREDENTIALS_FILE.
  keyAlgorithm | string | KEY_ALG_RSA_2048.
ServiceAccountKey: A key of a service account.
  name | string | projects/P/serviceAccounts/EMAIL/keys/ID.
  privateKeyType | string | TYPE_GOOGLE_CREDENTIALS_FILE.
  keyAlgorithm | string | KEY_ALG_RSA_2048.
  privateKeyData | bytes | The key file; shown once.
  publicKeyData | bytes | The public half.
  validAfterTime | timestamp | From when on it is good.
  validBeforeTime | timestamp | Until when it is good.
  keyOrigin | string | GOOGLE_PROVIDED.
  keyType | string | USER_MANAGED.
ListServiceAccountKeysResponse: The keys of an account.
  keys | ServiceAccountKey[] | The keys.
GoogleApiServiceusageV1ServiceConfig: A service.
  name | string | Its host.
  title | string | In words.
GoogleApiServiceusageV1Service: A service of a project.
  name | string | projects/NUMBER/services/HOST.
  parent | string | projects/NUMBER.
  config | GoogleApiServiceusageV1ServiceConfig | Which it is.
  state | string | ENABLED or DISABLED.
ListServicesResponse: A page of services.
  services | GoogleApiServiceusageV1Service[] | The services.
  nextPageToken | string | Of the next page.
BatchGetServicesResponse: Several services.
  services | GoogleApiServiceusageV1Service[] | The services.
EnableServiceRequest: Asks to enable a service.
BatchEnableServicesRequest: Asks to enable services.
  serviceIds | string[] | Their hosts.
DisableServiceRequest: Asks to disable a service.
  disableDependentServices | bool | Makes no difference.
  checkIfServiceHasUsage | string | Makes no difference.
ProjectBillingInfo: What pays for a project.
  name | string | projects/P/billingInfo.
  projectId | string | The project.
  billingAccountName | string | billingAccounts/ID.
  billingEnabled | bool | Always.
BillingAccount: A billing account.
  name | string | billingAccounts/ID.
  open | bool | Always.
  displayName | string | The project whose account it is.
  masterBillingAccount | string | Nothing.
  currencyCode | string | Of its invoices.
ListBillingAccountsResponse: A page of billing accounts.
  billingAccounts | BillingAccount[] | The accounts.
  nextPageToken | string | Of the next page.
MonitoredResource: What an entry or a point is about.
  type | string | Its kind, as in tpu_worker.
  labels | map | Which it is.
HttpRequest: A request.
  requestMethod | string | GET, POST, ...
  requestUrl | string | Its path.
  status | int32 | Of the answer.
  remoteIp | string | Of the caller.
LogEntrySourceLocation: A line of a program.
  file | string | Its file.
  line | int64 | Its number.
  function | string | Its function.
LogEntry: A log entry.
  logName | string | projects/P/logs/ID.
  resource | MonitoredResource | What it is about.
  timestamp | timestamp | When it happened.
  receiveTimestamp | timestamp | When it was received.
  severity | string | DEFAULT to EMERGENCY.
  insertId | string | Entries of one time and one such id are one entry.
  labels | map | Labels.
  textPayload | string | The line.
  jsonPayload | any | Or an object.
  protoPayload | any | Or a message of Google's.
  httpRequest? | HttpRequest | Left aside.
  sourceLocation? | LogEntrySourceLocation | Left aside.
  operation? | any | Left aside.
  trace? | string | Left aside.
  spanId? | string | Left aside.
  traceSampled? | bool | Left aside.
WriteLogEntriesRequest: Asks to write entries.
  logName | string | Of entries without one.
  resource | MonitoredResource | Of entries without one.
  labels | map | Of entries without them.
  entries | LogEntry[] | The entries.
  partialSuccess | bool | Makes no difference: all entries are written, or none.
  dryRun | bool | Checks the entries only.
WriteLogEntriesResponse: Nothing more to say.
ListLogEntriesRequest: Asks for entries.
  resourceNames | string[] | projects/P.
  projectIds | string[] | As resourceNames, in its old form.
  filter | string | In Logging's query language.
  orderBy | string | timestamp asc or timestamp desc.
  pageSize | int32 | At most 1000.
  pageToken | string | The nextPageToken of the page before.
ListLogEntriesResponse: A page of entries.
  entries | LogEntry[] | The entries.
  nextPageToken | string | Of the next page.
ListLogsResponse: A page of logs.
  logNames | string[] | Their names.
  nextPageToken | string | Of the next page.
LabelDescriptor: A label.
  key | string | Its name.
  valueType | string | STRING.
  description | string | About it.
MetricDescriptor: A metric.
  name | string | projects/P/metricDescriptors/TYPE.
  type | string | As in tpu.googleapis.com/accelerator/duty_cycle.
  labels | LabelDescriptor[] | Labels of its points.
  metricKind | string | GAUGE.
  valueType | string | DOUBLE or INT64.
  unit | string | In UCUM.
  description | string | About it.
  displayName | string | In words.
  monitoredResourceTypes | string[] | What it is measured on.
ListMetricDescriptorsResponse: A page of metrics.
  metricDescriptors | MetricDescriptor[] | The metrics.
  nextPageToken | string | Of the next page.
Metric: A metric with its labels.
  type | string | Which it is.
  labels | map | Labels.
TimeInterval: A time.
  startTime | timestamp | Its beginning.
  endTime | timestamp | Its end.
TypedValue: A value.
  doubleValue | double | A number.
  int64Value | int64 | A whole number.
Point: A measured value.
  interval | TimeInterval | When.
  value | TypedValue | How much.
TimeSeries: The points of a metric on one resource.
  metric | Metric | The metric.
  resource | MonitoredResource | The resource.
  metricKind | string | GAUGE.
  valueType | string | DOUBLE or INT64.
  unit | string | In UCUM.
  points | Point[] | The newest first.
ListTimeSeriesResponse: A page of series.
  timeSeries | TimeSeries[] | The series.
  nextPageToken | string | Of the next page.
  unit | string | In UCUM.
"""  # noqa: E501
