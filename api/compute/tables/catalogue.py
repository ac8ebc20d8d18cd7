"""Zones, regions, and what they offer; images."""

from __future__ import annotations

MESSAGES = """
Zone: A zone.
  availableCpuPlatforms:[]! creationTimestamp! description! id:int64! kind! name! region! selfLink!
  status:DOWN|UP! supportsPzs:bool!
Region: A region.
  creationTimestamp! description! id:int64! kind! name! quotas:Quota[]! selfLink! status:DOWN|UP!
  supportsPzs:bool! zones:[]!
MachineType: The processors, memory and chips of an instance.
  accelerators:MachineTypeAccelerator[]! architecture:ARCHITECTURE_UNSPECIFIED|ARM64|X86_64!
  creationTimestamp! description! guestCpus:int32! id:int64! imageSpaceGb:int32
  isSharedCpu:bool! kind! maximumPersistentDisks:int32! maximumPersistentDisksSizeGb:int64!
  memoryMb:int32! name! selfLink! zone!
MachineTypeAccelerator: The chips of a machine type.
  guestAcceleratorCount:int32! guestAcceleratorType!
AcceleratorType: A kind of chip.
  creationTimestamp! description! id:int64! kind! maximumCardsPerInstance:int32! name! selfLink!
  zone!
DiskType: A kind of disk.
  creationTimestamp! defaultDiskSizeGb:int64! description! id:int64! kind! name! region! selfLink!
  validDiskSize! zone!
Image: An image of a boot disk.
  architecture:ARCHITECTURE_UNSPECIFIED|ARM64|X86_64 archiveSizeBytes:int64 creationTimestamp!
  description diskSizeGb:int64 family guestOsFeatures:GuestOsFeature[] id:int64! kind!
  labelFingerprint:bytes labels:map licenseCodes:int64[] licenses:[] name selfLink! sourceDisk
  sourceImage sourceSnapshot sourceType status:DELETING|FAILED|PENDING|READY!
  storageLocations:[]
"""

METHODS = """
zones.list | GET | projects/{project}/zones | @list | | Zone[] | compute.zones.list | Lists zones.
zones.get | GET | projects/{project}/zones/{zone} | | | Zone | compute.zones.get | Shows a zone.
regions.list | GET | projects/{project}/regions | @list | | Region[] | compute.regions.list | Lists regions.
regions.get | GET | projects/{project}/regions/{region} | | | Region | compute.regions.get | Shows a region.
machineTypes.list | GET | projects/{project}/zones/{zone}/machineTypes | @list | | MachineType[] | \
compute.machineTypes.list | Lists the machine types of a zone.
machineTypes.aggregatedList | GET | projects/{project}/aggregated/machineTypes | @aggregated | | MachineType{} | \
compute.machineTypes.list | Lists the machine types of all zones.
machineTypes.get | GET | projects/{project}/zones/{zone}/machineTypes/{machineType} | | | MachineType | \
compute.machineTypes.get | Shows a machine type.
acceleratorTypes.list | GET | projects/{project}/zones/{zone}/acceleratorTypes | @list | | AcceleratorType[] | \
compute.acceleratorTypes.list | Lists the accelerator types of a zone.
acceleratorTypes.aggregatedList | GET | projects/{project}/aggregated/acceleratorTypes | @aggregated | | \
AcceleratorType{} | compute.acceleratorTypes.list | Lists the accelerator types of all zones.
acceleratorTypes.get | GET | projects/{project}/zones/{zone}/acceleratorTypes/{acceleratorType} | | | \
AcceleratorType | compute.acceleratorTypes.get | Shows an accelerator type.
diskTypes.list | GET | projects/{project}/zones/{zone}/diskTypes | @list | | DiskType[] | compute.diskTypes.list | \
Lists the disk types of a zone.
diskTypes.aggregatedList | GET | projects/{project}/aggregated/diskTypes | @aggregated | | DiskType{} | \
compute.diskTypes.list | Lists the disk types of all zones.
diskTypes.get | GET | projects/{project}/zones/{zone}/diskTypes/{diskType} | | | DiskType | compute.diskTypes.get | \
Shows a disk type.
images.list | GET | projects/{project}/global/images | @list | | Image[] | compute.images.list | Lists images.
images.get | GET | projects/{project}/global/images/{image} | | | Image | compute.images.get | Shows an image.
images.getFromFamily | GET | projects/{project}/global/images/family/{family} | | | Image | compute.images.get | \
Shows the newest image of a family.
"""  # noqa: E501
