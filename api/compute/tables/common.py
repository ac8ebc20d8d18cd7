"""Projects and operations, and what several parts use."""

from __future__ import annotations

MESSAGES = """
Operation: A change that was asked for; it ends once.
  clientOperationId! creationTimestamp! description! endTime! error:OperationError!
  httpErrorMessage! httpErrorStatusCode:int32! id:int64! insertTime! kind! name!
  operationGroupId! operationType! progress:int32! region! selfLink! startTime!
  status:DONE|PENDING|RUNNING! statusMessage! targetId:int64! targetLink! user!
  warnings:OperationWarning[]! zone!
OperationError: The errors that an operation has ended with.
  errors:OperationErrorItem[]!
OperationErrorItem: One error.
  code! errorDetails:any[]! location! message!
OperationWarning: Something that the caller should know.
  code! data:any[]! message!
Project: A project.
  commonInstanceMetadata:Metadata creationTimestamp!
  defaultNetworkTier:FIXED_STANDARD|PREMIUM|STANDARD|STANDARD_OVERRIDES_FIXED_STANDARD
  defaultServiceAccount! description enabledFeatures:[] id:int64! kind! name quotas:Quota[]!
  selfLink! vmDnsSetting:GLOBAL_DEFAULT|UNSPECIFIED_VM_DNS_SETTING|ZONAL_DEFAULT|ZONAL_ONLY!
  xpnProjectStatus:HOST|UNSPECIFIED_XPN_PROJECT_STATUS!
Quota: A limit, and how much of it is in use.
  limit:double! metric! owner! usage:double!
Metadata: Keys and values that hosts read.
  fingerprint:bytes items:MetadataItem[] kind!
MetadataItem: One of them.
  key value
Warning: Something about a list that the caller should know.
  code! data:any[]! message!
"""

METHODS = """
projects.get | GET | projects/{project} | | | Project | compute.projects.get | Shows a project.
projects.setCommonInstanceMetadata | POST | projects/{project}/setCommonInstanceMetadata | @change | Metadata | \
Operation | compute.projects.setCommonInstanceMetadata | Replaces the metadata that all hosts of a project have.
globalOperations.list | GET | projects/{project}/global/operations | @list | | Operation[] | \
compute.globalOperations.list | Lists operations on what belongs to no region.
globalOperations.get | GET | projects/{project}/global/operations/{operation} | | | Operation | \
compute.globalOperations.get | Shows an operation.
globalOperations.wait | POST | projects/{project}/global/operations/{operation}/wait | | | Operation | \
compute.globalOperations.get | Shows an operation when it has ended, or after a while.
globalOperations.delete | DELETE | projects/{project}/global/operations/{operation} | | | | \
compute.globalOperations.delete | Forgets an operation.
globalOperations.aggregatedList | GET | projects/{project}/aggregated/operations | @aggregated | | Operation{} | \
compute.globalOperations.list | Lists the operations of all places.
regionOperations.list | GET | projects/{project}/regions/{region}/operations | @list | | Operation[] | \
compute.regionOperations.list | Lists the operations of a region.
regionOperations.get | GET | projects/{project}/regions/{region}/operations/{operation} | | | Operation | \
compute.regionOperations.get | Shows an operation.
regionOperations.wait | POST | projects/{project}/regions/{region}/operations/{operation}/wait | | | Operation | \
compute.regionOperations.get | Shows an operation when it has ended, or after a while.
regionOperations.delete | DELETE | projects/{project}/regions/{region}/operations/{operation} | | | | \
compute.regionOperations.delete | Forgets an operation.
zoneOperations.list | GET | projects/{project}/zones/{zone}/operations | @list | | Operation[] | \
compute.zoneOperations.list | Lists the operations of a zone.
zoneOperations.get | GET | projects/{project}/zones/{zone}/operations/{operation} | | | Operation | \
compute.zoneOperations.get | Shows an operation.
zoneOperations.wait | POST | projects/{project}/zones/{zone}/operations/{operation}/wait | | | Operation | \
compute.zoneOperations.get | Shows an operation when it has ended, or after a while.
zoneOperations.delete | DELETE | projects/{project}/zones/{zone}/operations/{operation} | | | | \
compute.zoneOperations.delete | Forgets an operation.
"""  # noqa: E501
