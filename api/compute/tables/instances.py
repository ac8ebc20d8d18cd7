"""Instances."""

from __future__ import annotations

MESSAGES = """
Instance: A machine.
  advancedMachineFeatures:AdvancedMachineFeatures canIpForward:bool
  confidentialInstanceConfig:ConfidentialInstanceConfig cpuPlatform! creationTimestamp!
  deletionProtection:bool description disks:AttachedDisk[] displayDevice:DisplayDevice
  fingerprint:bytes guestAccelerators:AcceleratorConfig[] hostname id:int64!
  instanceEncryptionKey:CustomerEncryptionKey
  keyRevocationActionType:NONE|STOP kind!
  labelFingerprint:bytes labels:map lastStartTimestamp! lastStopTimestamp! lastSuspendedTimestamp!
  localSsdEncryptionMode:EPHEMERAL_KEY_ENCRYPTION|STANDARD_ENCRYPTION
  machineType metadata:Metadata minCpuPlatform name networkInterfaces:NetworkInterface[]
  networkPerformanceConfig:NetworkPerformanceConfig params:InstanceParams
  privateIpv6GoogleAccess:ENABLE_BIDIRECTIONAL_ACCESS_TO_GOOGLE|ENABLE_OUTBOUND_VM_ACCESS_TO_GOOGLE|INHERIT_FROM_SUBNETWORK
  reservationAffinity:ReservationAffinity resourcePolicies:[] satisfiesPzi:bool! satisfiesPzs:bool!
  scheduling:Scheduling selfLink! serviceAccounts:ServiceAccount[]
  shieldedInstanceConfig:ShieldedInstanceConfig
  shieldedInstanceIntegrityPolicy:ShieldedInstanceIntegrityPolicy sourceMachineImage
  sourceMachineImageEncryptionKey:CustomerEncryptionKey startRestricted:bool!
  status:DEPROVISIONING|PENDING|PENDING_STOP|PROVISIONING|REPAIRING|RUNNING|STAGING|STOPPED|STOPPING|SUSPENDED|SUSPENDING|TERMINATED!
  statusMessage! tags:Tags workloadIdentityConfig:WorkloadIdentityConfig zone!
InstanceProperties: Instances of a template, or of a request for several.
  advancedMachineFeatures:AdvancedMachineFeatures canIpForward:bool
  confidentialInstanceConfig:ConfidentialInstanceConfig description disks:AttachedDisk[]
  guestAccelerators:AcceleratorConfig[]
  keyRevocationActionType:NONE|STOP labels:map
  localSsdEncryptionMode:EPHEMERAL_KEY_ENCRYPTION|STANDARD_ENCRYPTION
  machineType metadata:Metadata minCpuPlatform networkInterfaces:NetworkInterface[]
  networkPerformanceConfig:NetworkPerformanceConfig
  privateIpv6GoogleAccess:ENABLE_BIDIRECTIONAL_ACCESS_TO_GOOGLE|ENABLE_OUTBOUND_VM_ACCESS_TO_GOOGLE|INHERIT_FROM_SUBNETWORK
  reservationAffinity:ReservationAffinity resourceManagerTags:map resourcePolicies:[]
  scheduling:Scheduling serviceAccounts:ServiceAccount[]
  shieldedInstanceConfig:ShieldedInstanceConfig tags:Tags
  workloadIdentityConfig:WorkloadIdentityConfig
BulkInsertInstanceResource: Asks for several instances.
  count:int64 instanceProperties:InstanceProperties locationPolicy:LocationPolicy minCount:int64
  namePattern perInstanceProperties:map<BulkInsertInstanceResourcePerInstanceProperties>
  sourceInstanceTemplate
InstancesSetLabelsRequest: Asks for other labels.
  labelFingerprint:bytes labels:map
InstancesSetServiceAccountRequest: Asks for another identity.
  email scopes:[]
InstancesSetMachineTypeRequest: Asks for another machine type.
  machineType
InstancesSetMinCpuPlatformRequest: Asks for another minimum CPU platform.
  minCpuPlatform
InstancesAddResourcePoliciesRequest: Names policies to add.
  resourcePolicies:[]
InstancesRemoveResourcePoliciesRequest: Names policies to remove.
  resourcePolicies:[]
SerialPortOutput: Output of scripts.
  contents! kind! next:int64! selfLink! start:int64
GuestAttributes: Values that programs on an instance have published.
  kind! queryPath queryValue:GuestAttributesValue! selfLink! variableKey variableValue!
Tags: Words that rules of firewalls go by.
  fingerprint:bytes items:[]
AdvancedMachineFeatures: Advanced machine features.
  enableNestedVirtualization:bool enableUefiNetworking:bool
  performanceMonitoringUnit:ARCHITECTURAL|ENHANCED|STANDARD
  threadsPerCore:int32 turboMode visibleCoreCount:int32
ConfidentialInstanceConfig: Confidential instance config.
  confidentialInstanceType:BMSAI|CCA|SEV|SEV_SNP|TDX
  enableConfidentialCompute:bool
AttachedDisk: A disk of an instance.
  architecture:ARM64|X86_64! autoDelete:bool boot:bool deviceName
  diskEncryptionKey:CustomerEncryptionKey diskSizeGb:int64 forceAttach:bool
  guestOsFeatures:GuestOsFeature[] index:int32! initializeParams:AttachedDiskInitializeParams
  interface:NVME|SCSI kind! licenses:[]! mode:READ_ONLY|READ_WRITE
  savedState! source type:PERSISTENT|SCRATCH
DisplayDevice: Display device.
  enableDisplay:bool
AcceleratorConfig: Chips of an instance.
  acceleratorCount:int32 acceleratorType
CustomerEncryptionKey: A key of the user's own.
  kmsKeyName kmsKeyServiceAccount rawKey rsaEncryptedKey sha256!
NetworkInterface: A network that an instance is in.
  accessConfigs:AccessConfig[] aliasIpRanges:AliasIpRange[] aliasIpv6Ranges:AliasIpRange[]
  enableVpcScopedDns:bool fingerprint:bytes igmpQuery:IGMP_QUERY_DISABLED|IGMP_QUERY_V2
  internalIpv6PrefixLength:int32 ipv6AccessConfigs:AccessConfig[] ipv6AccessType:EXTERNAL|INTERNAL!
  ipv6Address kind! name! network networkAttachment networkIP
  nicType:GVNIC|IDPF|IRDMA|MRDMA|VIRTIO_NET parentNicName queueCount:int32
  serviceClassId stackType:IPV4_IPV6|IPV4_ONLY|IPV6_ONLY subnetwork vlan:int32
NetworkPerformanceConfig: Network performance config.
  totalEgressBandwidthTier:DEFAULT|TIER_1
InstanceParams: Settings that count for a request only.
  requestValidForDuration:Duration resourceManagerTags:map
ReservationAffinity: The reservations that an instance may use.
  consumeReservationType:ANY_RESERVATION|NO_RESERVATION|SPECIFIC_RESERVATION key
  values:[]
Scheduling: How an instance is bought, and how it ends.
  automaticRestart:bool availabilityDomain:int32 exposeHostTopology:bool
  hostErrorTimeoutSeconds:int32
  instanceTerminationAction:DELETE|STOP
  localSsdRecoveryTimeout:Duration locationHint maxRunDuration:Duration minNodeCpus:int32
  nodeAffinities:SchedulingNodeAffinity[] onHostMaintenance:MIGRATE|TERMINATE
  onInstanceStopAction:SchedulingOnInstanceStopAction preemptible:bool
  preemptionNoticeDuration:Duration
  protectionTier:PROTECTION_TIER_CAPACITY_OPTIMIZED|PROTECTION_TIER_STANDARD
  provisioningModel:FLEX_START|RESERVATION_BOUND|SPOT|STANDARD skipGuestOsShutdown:bool
  terminationTime
ServiceAccount: The identity of an instance.
  email scopes:[]
ShieldedInstanceConfig: Shielded instance config.
  enableIntegrityMonitoring:bool enableSecureBoot:bool enableVtpm:bool
ShieldedInstanceIntegrityPolicy: Shielded instance integrity policy.
  updateAutoLearnPolicy:bool
WorkloadIdentityConfig: Workload identity config.
  identity identityCertificateEnabled:bool
  identityType:AGENT_IDENTITY|SERVICE_ACCOUNT
LocationPolicy: Location policy.
  locations:map<LocationPolicyLocation> targetShape:ANY|ANY_SINGLE_ZONE|BALANCED
  zones:LocationPolicyZoneConfiguration[]
BulkInsertInstanceResourcePerInstanceProperties: Settings of one of several instances.
  hostname name
GuestAttributesValue: All of them.
  items:GuestAttributesEntry[]
AttachedDiskInitializeParams: A disk that is made with its instance.
  architecture:ARM64|X86_64 description diskName diskSizeGb:int64 diskType
  enableConfidentialCompute:bool labels:map licenses:[]
  onUpdateAction:RECREATE_DISK|RECREATE_DISK_IF_SOURCE_CHANGED|USE_EXISTING_DISK
  provisionedIops:int64 provisionedThroughput:int64 replicaZones:[] resourceManagerTags:map
  resourcePolicies:[] sourceImage sourceImageEncryptionKey:CustomerEncryptionKey sourceSnapshot
  sourceSnapshotEncryptionKey:CustomerEncryptionKey storagePool
AccessConfig: An address that is reached from outside.
  externalIpv6 externalIpv6PrefixLength:int32 ipCollection kind! name natIP
  networkTier:FIXED_STANDARD|PREMIUM|STANDARD|STANDARD_OVERRIDES_FIXED_STANDARD publicPtrDomainName
  securityPolicy setPublicPtr:bool type:DIRECT_IPV6|ONE_TO_ONE_NAT
AliasIpRange: Alias ip range.
  ipCidrRange subnetworkRangeName
Duration: A time span.
  nanos:int32 seconds:int64
SchedulingNodeAffinity: Scheduling node affinity.
  key operator:IN|NOT_IN values:[]
SchedulingOnInstanceStopAction: Scheduling on instance stop action.
  discardLocalSsd:bool
LocationPolicyLocation: Location policy location.
  constraints:LocationPolicyLocationConstraints preference:ALLOW|DENY
LocationPolicyZoneConfiguration: Location policy zone configuration.
  zone
GuestAttributesEntry: One of them.
  key namespace value
LocationPolicyLocationConstraints: Location policy location constraints.
  maxCount:int32
"""

METHODS = """
instances.list | GET | projects/{project}/zones/{zone}/instances | @list | | Instance[] | \
compute.instances.list | Lists the instances of a zone.
instances.aggregatedList | GET | projects/{project}/aggregated/instances | @aggregated | | Instance{} | \
compute.instances.list | Lists the instances of all zones.
instances.get | GET | projects/{project}/zones/{zone}/instances/{instance} | | | Instance | \
compute.instances.get | Shows an instance.
instances.insert | POST | projects/{project}/zones/{zone}/instances | @change sourceInstanceTemplate sourceMachineImage | \
Instance | Operation | compute.instances.create | Makes an instance.
instances.bulkInsert | POST | projects/{project}/zones/{zone}/instances/bulkInsert | @change | \
BulkInsertInstanceResource | Operation | compute.instances.create | Makes several instances, or none.
instances.delete | DELETE | projects/{project}/zones/{zone}/instances/{instance} | @change | | Operation | \
compute.instances.delete | Deletes an instance.
instances.stop | POST | projects/{project}/zones/{zone}/instances/{instance}/stop | @change discardLocalSsd:bool | | \
Operation | compute.instances.stop | Stops an instance.
instances.start | POST | projects/{project}/zones/{zone}/instances/{instance}/start | @change | | Operation | \
compute.instances.start | Starts an instance that was stopped.
instances.reset | POST | projects/{project}/zones/{zone}/instances/{instance}/reset | @change | | Operation | \
compute.instances.reset | Starts the hosts of an instance again.
instances.update | PUT | projects/{project}/zones/{zone}/instances/{instance} | \
@change minimalAction mostDisruptiveAllowedAction | Instance | Operation | compute.instances.update | \
Replaces labels, metadata, tags and description.
instances.setMetadata | POST | projects/{project}/zones/{zone}/instances/{instance}/setMetadata | @change | Metadata | \
Operation | compute.instances.setMetadata | Replaces the metadata of an instance.
instances.setLabels | POST | projects/{project}/zones/{zone}/instances/{instance}/setLabels | @change | \
InstancesSetLabelsRequest | Operation | compute.instances.setLabels | Replaces the labels of an instance.
instances.setTags | POST | projects/{project}/zones/{zone}/instances/{instance}/setTags | @change | Tags | Operation | \
compute.instances.setTags | Replaces the network tags of an instance.
instances.setScheduling | POST | projects/{project}/zones/{zone}/instances/{instance}/setScheduling | @change | \
Scheduling | Operation | compute.instances.setScheduling | Replaces the scheduling of an instance.
instances.setServiceAccount | POST | projects/{project}/zones/{zone}/instances/{instance}/setServiceAccount | @change | \
InstancesSetServiceAccountRequest | Operation | compute.instances.setServiceAccount | Replaces the identity of an instance.
instances.attachDisk | POST | projects/{project}/zones/{zone}/instances/{instance}/attachDisk | @change forceAttach:bool | \
AttachedDisk | Operation | compute.instances.attachDisk | Attaches a disk.
instances.detachDisk | POST | projects/{project}/zones/{zone}/instances/{instance}/detachDisk | @change deviceName! | | \
Operation | compute.instances.detachDisk | Detaches a disk.
instances.setMachineType | POST | projects/{project}/zones/{zone}/instances/{instance}/setMachineType | @change | InstancesSetMachineTypeRequest | Operation | \
compute.instances.setMachineType | Replaces the machine type of an instance that is stopped.
instances.setMinCpuPlatform | POST | projects/{project}/zones/{zone}/instances/{instance}/setMinCpuPlatform | @change | InstancesSetMinCpuPlatformRequest | Operation | \
compute.instances.setMinCpuPlatform | Keeps another minimum CPU platform.
instances.setDeletionProtection | POST | projects/{project}/zones/{zone}/instances/{resource}/setDeletionProtection | \
@change deletionProtection:bool | | Operation | compute.instances.setDeletionProtection | Forbids or allows the deletion of an instance.
instances.setDiskAutoDelete | POST | projects/{project}/zones/{zone}/instances/{instance}/setDiskAutoDelete | @change autoDelete:bool! deviceName! | | Operation | \
compute.instances.setDiskAutoDelete | Says whether a disk is deleted with its instance.
instances.addAccessConfig | POST | projects/{project}/zones/{zone}/instances/{instance}/addAccessConfig | @change networkInterface! | AccessConfig | Operation | \
compute.instances.addAccessConfig | Gives an instance an external address.
instances.updateAccessConfig | POST | projects/{project}/zones/{zone}/instances/{instance}/updateAccessConfig | @change networkInterface! | AccessConfig | Operation | \
compute.instances.updateAccessConfig | Changes the name or the tier of an external address.
instances.deleteAccessConfig | POST | projects/{project}/zones/{zone}/instances/{instance}/deleteAccessConfig | @change accessConfig! networkInterface! | | Operation | \
compute.instances.deleteAccessConfig | Takes the external address of an instance away.
instances.updateDisplayDevice | PATCH | projects/{project}/zones/{zone}/instances/{instance}/updateDisplayDevice | @change | DisplayDevice | Operation | \
compute.instances.updateDisplayDevice | Keeps another setting of the display.
instances.updateShieldedInstanceConfig | PATCH | projects/{project}/zones/{zone}/instances/{instance}/updateShieldedInstanceConfig | @change | \
ShieldedInstanceConfig | Operation | compute.instances.updateShieldedInstanceConfig | Keeps another Shielded VM configuration.
instances.addResourcePolicies | POST | projects/{project}/zones/{zone}/instances/{instance}/addResourcePolicies | @change | InstancesAddResourcePoliciesRequest | \
Operation | compute.instances.addResourcePolicies | Adds placement policies to an instance.
instances.removeResourcePolicies | POST | projects/{project}/zones/{zone}/instances/{instance}/removeResourcePolicies | @change | \
InstancesRemoveResourcePoliciesRequest | Operation | compute.instances.removeResourcePolicies | Removes placement policies.
instances.suspend | POST | projects/{project}/zones/{zone}/instances/{instance}/suspend | @change discardLocalSsd:bool | | Operation | compute.instances.suspend | \
Is refused: hosts cannot be frozen.
instances.resume | POST | projects/{project}/zones/{zone}/instances/{instance}/resume | @change | | Operation | compute.instances.resume | \
Is refused: hosts cannot be frozen.
instances.simulateMaintenanceEvent | POST | \
projects/{project}/zones/{zone}/instances/{instance}/simulateMaintenanceEvent | @change withExtendedNotifications:bool | | \
Operation | compute.instances.simulateMaintenanceEvent | Tells an instance of a maintenance event.
instances.getSerialPortOutput | GET | projects/{project}/zones/{zone}/instances/{instance}/serialPort | \
port:int32 start:int64 | | SerialPortOutput | compute.instances.getSerialPortOutput | Shows the last lines of scripts.
instances.getGuestAttributes | GET | projects/{project}/zones/{zone}/instances/{instance}/getGuestAttributes | \
queryPath variableKey | | GuestAttributes | compute.instances.getGuestAttributes | Shows guest attributes.
"""  # noqa: E501
