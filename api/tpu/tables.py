"""The messages of the Cloud TPU API, all versions in one table. Readers, writers, discovery
documents, OpenAPI and the protobuf descriptors of the gRPC front are all made from it.

Names, types and versions: the discovery documents tpu v1, v1alpha1, v2 and v2alpha1 (revision
20261001). Field numbers: the descriptors of google-cloud-tpu 1.28. The sentences are ours.

A message is a line with its name (nested ones with their outer names, as in protobuf) and the
sentence about it. A field is a line `name | type | versions | numbers | flags | sentence`:

- type: string, bool, int32, int64, timestamp, duration, map (string to string), any, a message or
  enum of this table; `[]` behind it for a list.
- versions: all, v1 (also v1alpha1), v2 (v2 alone), v2+ (v2 and v2alpha1), alpha (v2alpha1 alone).
- numbers: one for all versions, or v1/v2/v2alpha1; `-` where the field is in the REST documents
  only.
- flags: `out` is output only: taken in a body and left aside. `left` is also left aside, though the
  documents do not call it output only. `also-v2` is taken by v2, too, but neither documented nor
  answered there. `one:NAME` excludes the other fields of that name. `optional` has presence in
  protobuf.
"""

from __future__ import annotations

ENUMS = """
Node.State STATE_UNSPECIFIED=0 CREATING=1 READY=2 RESTARTING=3 REIMAGING=4 DELETING=5 REPAIRING=6 STOPPED=8 STOPPING=9 \
STARTING=10 PREEMPTED=11 TERMINATED=12 HIDING=13 HIDDEN=14 UNHIDING=15 UNKNOWN=16
Node.Health HEALTH_UNSPECIFIED=0 HEALTHY=1 DEPRECATED_UNHEALTHY=2@v1 TIMEOUT=3 UNHEALTHY_TENSORFLOW=4 \
UNHEALTHY_MAINTENANCE=5
Node.ApiVersion API_VERSION_UNSPECIFIED=0 V1_ALPHA1=1 V1=2 V2_ALPHA1=3 V2=4@v2
Node.ProtectionTier PROTECTION_TIER_UNSPECIFIED=0@v2 STANDARD=1@v2 CAPACITY_OPTIMIZED=2@v2
Symptom.SymptomType SYMPTOM_TYPE_UNSPECIFIED=0 LOW_MEMORY=1 OUT_OF_MEMORY=2 EXECUTE_TIMED_OUT=3 MESH_BUILD_FAIL=4 \
HBM_OUT_OF_MEMORY=5 PROJECT_ABUSE=6
AcceleratorConfig.Type TYPE_UNSPECIFIED=0 V2=2 V3=4 V4=7 V5LITE_POD=9 V5P=10 V6E=11
AttachedDisk.DiskMode DISK_MODE_UNSPECIFIED=0 READ_WRITE=1 READ_ONLY=2
SchedulingConfig.ProvisioningModel PROVISIONING_MODEL_UNSPECIFIED=0 STANDARD=1 SPOT=2 RESERVATION_BOUND=3
UpcomingMaintenance.MaintenanceType UNKNOWN_TYPE=0 SCHEDULED=1 UNSCHEDULED=2
UpcomingMaintenance.MaintenanceStatus UNKNOWN=0 PENDING=1 ONGOING=2
QueuedResource.ProvisioningModel PROVISIONING_MODEL_UNSPECIFIED=0 STANDARD=1 SPOT=2 RESERVATION_BOUND=3 FLEX_START=4
QueuedResource.Tpu.NodeSpec.MultiNodeParams.WorkloadType WORKLOAD_TYPE_UNSPECIFIED=0 THROUGHPUT_OPTIMIZED=1 \
AVAILABILITY_OPTIMIZED=2
QueuedResourceState.State STATE_UNSPECIFIED=0 CREATING=1 ACCEPTED=2 PROVISIONING=3 FAILED=4 DELETING=5 ACTIVE=6 \
SUSPENDING=7 SUSPENDED=8 WAITING_FOR_RESOURCES=9
QueuedResourceState.StateInitiator STATE_INITIATOR_UNSPECIFIED=0 USER=1 SERVICE=2
Reservation.State STATE_UNSPECIFIED=0 APPROVED=3 PROVISIONING=4 ACTIVE=5 DEPROVISIONING=6 EXPIRED=7 FAILED=8
Reservation.Standard.CapacityUnits CAPACITY_UNITS_UNSPECIFIED=0 CORES=1 CHIPS=2
"""  # noqa: E501

NODES = """
Node: A TPU node: one slice of a pod with its hosts.
  name | string | all | 1 | out | Full name: projects/P/locations/L/nodes/N.
  description | string | all | 3 | | What the user says about it, at most 512 characters.
  acceleratorType | string | all | 5 | | Type of slice, as in v3-32. Excludes acceleratorConfig.
  state | Node.State | all | 9 | out | Where the node is in its life.
  healthDescription | string | all | 10 | out | Why the node is unhealthy.
  tensorflowVersion | string | v1 | 11 | | Version of TensorFlow on the node.
  ipAddress | string | v1 | 8 | left | Address of the first host.
  port | string | v1 | 14 | left | Port of the first host.
  network | string | v1 | 12 | | Network that the node is peered with.
  useServiceNetworking | bool | v1 | 27 | | Whether the range is allocated by service networking.
  runtimeVersion | string | v2+ | 11 | | Version of the runtime on the hosts.
  networkConfig | NetworkConfig | v2+ | 36 | | Network of the hosts. Excludes networkConfigs.
  networkConfigs | NetworkConfig[] | v2+ | -/49/50 | | One entry for each network interface.
  cidrBlock | string | all | 13 | | Address range of the node.
  serviceAccount | string | v1 | 15 | out | Service account of the node.
  serviceAccount | ServiceAccount | v2+ | 37 | | Service account that the hosts act as.
  createTime | timestamp | all | 16 | out | When the node was asked for.
  schedulingConfig | SchedulingConfig | all | 17 | | How the node is bought.
  networkEndpoints | NetworkEndpoint[] | all | 21 | out | One entry for each host, in order.
  health | Node.Health | all | 22 | left | Whether the node can work.
  labels | map | all | 24 | | Labels of the user.
  metadata | map | v2+ | 34 | | Metadata of the hosts, with start-up script and ssh keys.
  tags | string[] | v2+ | 40 | | Network tags of the hosts.
  id | int64 | v2+ | 33 | out | Number of the node, never used twice.
  dataDisks | AttachedDisk[] | v2+ | 41 | | Disks besides the boot disk.
  apiVersion | Node.ApiVersion | all | 38 | out | Version of the API that made the node.
  symptoms | Symptom[] | all | 39 | out | What went wrong on hosts.
  queuedResource | string | v2+ | -/47/43 | out | Full name of the queued resource that the node belongs to.
  acceleratorConfig | AcceleratorConfig | v2+ | -/46/44 | | Generation and topology. Excludes acceleratorType.
  shieldedInstanceConfig | ShieldedInstanceConfig | v2+ | 45 | | Secure boot.
  multisliceNode | bool | v2+ | -/48/47 | out | Whether the node is one slice of several.
  autocheckpointEnabled | bool | alpha | 48 | | Whether checkpoints are written before maintenance.
  bootDiskConfig | BootDiskConfig | v2+ | -/-/49 | | The boot disk.
  upcomingMaintenance | UpcomingMaintenance | v2+ | -/-/51 | out | The next maintenance, if one is planned.
  protectionTier | Node.ProtectionTier | v2 | - | out | How the node is protected from being taken back.
SchedulingConfig: How a node is bought.
  preemptible | bool | all | 1 | | May be taken back at any time, and lives for 24 hours at most.
  reserved | bool | all | 2 | | Comes out of a reservation.
  spot | bool | v2+ | 3 | | May be taken back at any time.
  provisioningModel | SchedulingConfig.ProvisioningModel | alpha | - | | The same choice by one name.
  reservationName | string | alpha | - | | The reservation: projects/P/locations/L/reservations/R.
  terminationTimestamp | timestamp | alpha | - | out | When the node will be ended.
NetworkEndpoint: How to reach one host.
  ipAddress | string | all | 1 | | Address inside the network.
  port | int32 | all | 2 | | Port of the TPU service.
  accessConfig | AccessConfig | v2+ | 5 | | Address outside the network.
AccessConfig: An address outside the network.
  externalIp | string | v2+ | 1 | out | The address.
NetworkConfig: A network interface of the hosts.
  network | string | v2+ | 1 | | The network; `default` when it is left out.
  subnetwork | string | v2+ | 2 | | The subnetwork.
  enableExternalIps | bool | v2+ | 3 | | Whether each host has an external address.
  canIpForward | bool | v2+ | 4 | | Whether hosts may send packets with foreign addresses.
  queueCount | int32 | v2+ | 6 | | Queues of the interface.
ServiceAccount: A service account and what it may be used for.
  email | string | v2+ | 1 | | Its address; the project's default one when it is left out.
  scope | string[] | v2+ | 2 | | OAuth scopes of its tokens.
AcceleratorConfig: Generation and topology of a slice.
  type | AcceleratorConfig.Type | v2+ | 1 | | The generation.
  topology | string | v2+ | 2 | | Chips in each dimension, as in 2x2x2.
ShieldedInstanceConfig: Options of shielded hosts.
  enableSecureBoot | bool | v2+ | 1 | | Whether only signed software starts.
AttachedDisk: A disk that is attached to the hosts.
  sourceDisk | string | v2+ | 3 | | The disk: projects/P/zones/Z/disks/D.
  mode | AttachedDisk.DiskMode | v2+ | 4 | | READ_WRITE for nodes of one host only; READ_ONLY for any.
  workerIds | string[] | alpha | - | | Hosts that get the disk; all when it is left out.
BootDiskConfig: The boot disk of the hosts.
  customerEncryptionKey | CustomerEncryptionKey | v2+ | -/-/1 | | Key of the customer.
  enableConfidentialCompute | bool | alpha | -/-/2 | | Whether the disk is confidential.
  diskSizeGb | int64 | alpha | - | | Size in GB.
  provisionedIops | int64 | alpha | - | | Operations a second.
  provisionedThroughput | int64 | alpha | - | | MB a second.
  sourceImage | string | alpha | - | | Image of the disk.
  storagePool | string | alpha | - | | Pool that the disk is made in.
CustomerEncryptionKey: A key of the customer.
  kmsKeyName | string | v2+ | -/-/7 | one:key | Full name of the key.
Symptom: Something that went wrong on a host.
  createTime | timestamp | all | 1 | | When it was seen.
  symptomType | Symptom.SymptomType | all | 2 | | What kind it is.
  details | string | all | 3 | | In words.
  workerId | string | all | 4 | | The host.
UpcomingMaintenance: A maintenance that is planned or under way.
  type | UpcomingMaintenance.MaintenanceType | v2+ | -/-/1 | optional | Whether it was scheduled.
  canReschedule | bool | v2+ | -/-/5 | optional | Whether the user may start it earlier.
  windowStartTime | string | v2+ | -/-/6 | optional | When it begins.
  windowEndTime | string | v2+ | -/-/7 | optional | When it is over.
  latestWindowStartTime | string | v2+ | -/-/8 | optional | The last moment at which it begins.
  maintenanceStatus | UpcomingMaintenance.MaintenanceStatus | v2+ | -/-/9 | optional | Planned or under way.
GuestAttributes: What a host has published.
  queryPath | string | v2+ | 1 | | The path that was asked for.
  queryValue | GuestAttributesValue | v2+ | 2 | | What is there.
GuestAttributesValue: Guest attributes under one path.
  items | GuestAttributesEntry[] | v2+ | 1 | | The entries.
GuestAttributesEntry: One guest attribute.
  namespace | string | v2+ | 1 | | Its namespace.
  key | string | v2+ | 2 | | Its key.
  value | string | v2+ | 3 | | Its value.
ServiceIdentity: The account that the TPU service acts as in a project.
  email | string | v2+ | 1 | | Its address.
"""  # noqa: E501

QUEUE = """
QueuedResource: A request for nodes that waits until they can be made.
  name | string | v2+ | 1 | out | Full name: projects/P/locations/L/queuedResources/Q.
  createTime | timestamp | v2+ | 11 | out | When it was asked for.
  tpu | QueuedResource.Tpu | v2+ | 2 | one:resource | The nodes.
  bestEffort | QueuedResource.BestEffort | alpha | 3 | one:tier | Takes what is left over.
  spot | QueuedResource.Spot | v2+ | -/3/9 | one:tier | May be taken back at any time.
  guaranteed | QueuedResource.Guaranteed | v2+ | 4 | one:tier | Is not taken back.
  queueingPolicy | QueuedResource.QueueingPolicy | v2+ | 5 | | When it may be fulfilled.
  state | QueuedResourceState | v2+ | 6 | out | Where it is in its life.
  reservationName | string | v2+ | -/7/8 | | The reservation: projects/P/locations/L/reservations/R; `-` for any.
  provisioningModel | QueuedResource.ProvisioningModel | alpha | - | | How the nodes are bought, by one name.
  runDuration | QueuedResource.RunDuration | alpha | - | | How long the nodes may live.
QueuedResource.Tpu: Nodes that are asked for.
  nodeSpec | QueuedResource.Tpu.NodeSpec[] | v2+ | 1 | | One entry for each node, or one for several equal ones.
QueuedResource.Tpu.NodeSpec: One node, or several equal ones.
  parent | string | v2+ | 1 | | Location of the node: projects/P/locations/L.
  nodeId | string | v2+ | 2 | one:name_strategy | Id of the one node.
  multisliceParams | QueuedResource.Tpu.NodeSpec.MultisliceParams | v2 | 3 | one:name_strategy | Several equal slices.
  multiNodeParams | QueuedResource.Tpu.NodeSpec.MultiNodeParams | alpha | 6 | one:name_strategy | Several equal nodes.
  node | Node | v2+ | -/4/3 | | The node to create.
QueuedResource.Tpu.NodeSpec.MultisliceParams: Several equal slices.
  nodeCount | int32 | v2 | 1 | | How many.
  nodeIdPrefix | string | v2 | 2 | | Their ids are PREFIX-0, PREFIX-1 and so on.
QueuedResource.Tpu.NodeSpec.MultiNodeParams: Several equal nodes.
  nodeCount | int32 | alpha | 1 | | How many.
  nodeIdPrefix | string | alpha | 2 | | Their ids are PREFIX-0, PREFIX-1 and so on.
  workloadType | QueuedResource.Tpu.NodeSpec.MultiNodeParams.WorkloadType | alpha | 4 | | What they are for.
QueuedResource.Spot: May be taken back at any time.
QueuedResource.BestEffort: Takes what is left over.
QueuedResource.Guaranteed: Is not taken back.
  minDuration | duration | v2+ | 1 | | How long the nodes are needed for at least.
  reserved | bool | alpha | 2 | also-v2 | Comes out of a reservation.
QueuedResource.QueueingPolicy: When a request may be fulfilled.
  validUntilDuration | duration | v2+ | 1 | one:start_timing_constraints | Until so long after its creation.
  validUntilTime | timestamp | v2+ | 2 | one:start_timing_constraints | Until then.
  validAfterDuration | duration | v2+ | 3 | one:start_timing_constraints | From so long after its creation on.
  validAfterTime | timestamp | v2+ | 4 | one:start_timing_constraints | From then on.
  validInterval | Interval | v2+ | 5 | one:start_timing_constraints | Within this interval.
QueuedResource.RunDuration: How long nodes may live.
  maxRunDuration | duration | alpha | - | one:run_limit | So long.
  terminationTime | timestamp | alpha | - | one:run_limit | Until then.
QueuedResourceState: Where a queued resource is in its life.
  state | QueuedResourceState.State | v2+ | 1 | out | The state.
  creatingData | QueuedResourceState.CreatingData | v2+ | 2 | out one:state_data | While it is CREATING.
  acceptedData | QueuedResourceState.AcceptedData | v2+ | 3 | out one:state_data | While it is ACCEPTED.
  provisioningData | QueuedResourceState.ProvisioningData | v2+ | 4 | out one:state_data | While it is PROVISIONING.
  failedData | QueuedResourceState.FailedData | v2+ | 5 | out one:state_data | Why it has FAILED.
  deletingData | QueuedResourceState.DeletingData | v2+ | 6 | out one:state_data | While it is DELETING.
  activeData | QueuedResourceState.ActiveData | v2+ | 7 | out one:state_data | While it is ACTIVE.
  suspendingData | QueuedResourceState.SuspendingData | v2+ | 8 | out one:state_data | While it is SUSPENDING.
  suspendedData | QueuedResourceState.SuspendedData | v2+ | 9 | out one:state_data | While it is SUSPENDED.
  stateInitiator | QueuedResourceState.StateInitiator | v2+ | 10 | out | Who brought it into this state.
QueuedResourceState.CreatingData: Nothing more to say.
QueuedResourceState.AcceptedData: Nothing more to say.
QueuedResourceState.ProvisioningData: Nothing more to say.
QueuedResourceState.FailedData: Why a queued resource has failed.
  error | Status | v2+ | 1 | out | The reason.
QueuedResourceState.DeletingData: Nothing more to say.
QueuedResourceState.ActiveData: Nothing more to say.
QueuedResourceState.SuspendingData: Nothing more to say.
QueuedResourceState.SuspendedData: Nothing more to say.
Reservation: Capacity that is kept for a project.
  name | string | alpha | 1 | | Full name: projects/P/locations/L/reservations/R.
  standard | Reservation.Standard | alpha | 2 | one:kind | What is kept.
  state | Reservation.State | alpha | 3 | out | Where the reservation is in its life.
Reservation.Standard: A fixed amount of one resource for some time.
  size | int32 | alpha | 1 | | How much.
  capacityUnits | Reservation.Standard.CapacityUnits | alpha | 2 | | Cores or chips.
  resourceType | string | alpha | 3 | | Of what.
  interval | Interval | alpha | 4 | | From when to when.
  usage | Reservation.Standard.Usage | alpha | 5 | | How much of it is in use.
Reservation.Standard.Usage: How much of a reservation is in use.
  total | int64 | alpha | 1 | | In the units of the reservation.
NodeUpcomingMaintenanceInfo: The next maintenance of one node.
  nodeName | string | alpha | - | | Full name of the node.
  nodeUid | int64 | alpha | - | | Number of the node.
  upcomingMaintenance | UpcomingMaintenance | alpha | - | | The maintenance.
"""  # noqa: E501

COMMON = """
Operation: Work that takes time.
  name | string | all | - | | Full name: projects/P/locations/L/operations/O.
  metadata | any | all | - | | What it works on: an OperationMetadata.
  done | bool | all | - | | Whether it has ended.
  error | Status | all | - | | How it failed.
  response | any | all | - | | What came of it.
OperationMetadata: What an operation works on.
  createTime | timestamp | all | 1 | | When it was begun.
  endTime | timestamp | all | 2 | | When it ended.
  target | string | all | 3 | | Full name of what it works on.
  verb | string | all | 4 | | What it does.
  statusDetail | string | all | 5 | | How far it is, in words.
  cancelRequested | bool | all | 6 | | Whether its cancellation was requested.
  apiVersion | string | all | 7 | | Version of the API that it is shown in.
Status: An error.
  code | int32 | all | - | | A google.rpc.Code.
  message | string | all | - | | In words.
  details | any[] | all | - | | Messages with more.
Location: A zone.
  name | string | all | - | | Full name: projects/P/locations/L.
  locationId | string | all | - | | Id of the zone, as in us-central1-a.
  displayName | string | all | - | | The same for people.
  labels | map | all | - | | Labels.
  metadata | any | all | - | | More about the zone.
Interval: From one moment to another.
  startTime | timestamp | v2+ | - | | The first moment.
  endTime | timestamp | v2+ | - | | The first moment that is no more part of it.
Empty: Nothing.
AcceleratorType: A type of slice that a zone offers.
  name | string | all | 1 | | Full name: projects/P/locations/L/acceleratorTypes/T.
  type | string | all | 2 | | The type, as in v3-32.
  acceleratorConfigs | AcceleratorConfig[] | v2+ | 3 | | Its topologies.
RuntimeVersion: A version of the runtime.
  name | string | v2+ | 1 | | Full name: projects/P/locations/L/runtimeVersions/V.
  version | string | v2+ | 2 | | The version.
TensorFlowVersion: A version of TensorFlow.
  name | string | v1 | 1 | | Full name: projects/P/locations/L/tensorflowVersions/V.
  version | string | v1 | 2 | | The version.
"""
