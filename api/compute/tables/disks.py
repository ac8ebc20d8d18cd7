"""Persistent disks."""

from __future__ import annotations

MESSAGES = """
Disk: A persistent disk.
  accessMode:READ_ONLY_MANY|READ_WRITE_MANY|READ_WRITE_SINGLE
  architecture:ARCHITECTURE_UNSPECIFIED|ARM64|X86_64 creationTimestamp! description
  enableConfidentialCompute:bool guestOsFeatures:GuestOsFeature[] id:int64! kind!
  labelFingerprint:bytes labels:map lastAttachTimestamp! lastDetachTimestamp! licenseCodes:int64[]
  licenses:[] locationHint name options physicalBlockSizeBytes:int64 provisionedIops:int64
  provisionedThroughput:int64 region! replicaZones:[] resourcePolicies:[] satisfiesPzi:bool!
  satisfiesPzs:bool! selfLink! sizeGb:int64 sourceDisk sourceDiskId! sourceImage sourceImageId!
  sourceInstantSnapshot sourceSnapshot sourceSnapshotId! sourceStorageObject
  status:CREATING|DELETING|FAILED|READY|RESTORING|UNAVAILABLE! storagePool type users:[]! zone!
GuestOsFeature: Something that an image can do.
  type
DisksResizeRequest: Asks for a larger disk.
  sizeGb:int64
ZoneSetLabelsRequest: Asks for other labels.
  labelFingerprint:bytes labels:map
"""

METHODS = """
disks.list | GET | projects/{project}/zones/{zone}/disks | @list | | Disk[] | compute.disks.list | Lists disks.
disks.aggregatedList | GET | projects/{project}/aggregated/disks | @aggregated | | Disk{} | compute.disks.list | \
Lists the disks of all zones.
disks.get | GET | projects/{project}/zones/{zone}/disks/{disk} | | | Disk | compute.disks.get | Shows a disk.
disks.insert | POST | projects/{project}/zones/{zone}/disks | @change sourceImage | Disk | Operation | \
compute.disks.create | Makes a disk.
disks.delete | DELETE | projects/{project}/zones/{zone}/disks/{disk} | @change | | Operation | \
compute.disks.delete | Deletes a disk.
disks.resize | POST | projects/{project}/zones/{zone}/disks/{disk}/resize | @change | DisksResizeRequest | \
Operation | compute.disks.update | Makes a disk larger.
disks.setLabels | POST | projects/{project}/zones/{zone}/disks/{resource}/setLabels | @change | \
ZoneSetLabelsRequest | Operation | compute.disks.update | Replaces the labels of a disk.
"""  # noqa: E501
