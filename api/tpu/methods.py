"""The methods of the Cloud TPU API, all versions in one table: routes, permissions, discovery
documents, OpenAPI and
the gRPC front are made from it. Sources as for `tables.py`; permissions have the names that
Google's IAM gives them.

A line is `id | RPC | verb | path | body | response | versions | permission | sentence`. The path
begins with the field of the request that it holds: {name} a project, {name=L} a zone,
{name=L/nodes} a member of a collection of a zone. `body` is the field of the request message that
is the body, `*` for all fields that are not in the path, `-` for none; what is neither in the path
nor in the body is a query parameter. The request message of the RPC X is XRequest in `REQUESTS`
(format: `tables.py`).
"""

from __future__ import annotations

REQUESTS = """
ListNodesRequest: Asks for the nodes of a zone.
  parent | string | all | 1 | | The zone, or `-` for all zones.
  pageSize | int32 | all | 2 | | The most that one page may hold.
  pageToken | string | all | 3 | | The nextPageToken of the page before.
GetNodeRequest: Asks for a node.
  name | string | all | 1 | | The node.
CreateNodeRequest: Asks for a new node.
  parent | string | all | 1 | | The zone.
  nodeId | string | all | 2 | | Id of the new node.
  node | Node | all | 3 | | The node to create.
  requestId | string | alphas | -/-/6 | | A UUID: the same one is carried out once.
DeleteNodeRequest: Asks to delete a node.
  name | string | all | 1 | | The node.
  requestId | string | alphas | -/-/3 | | A UUID: the same one is carried out once.
UpdateNodeRequest: Asks to change a node.
  name | string | v2+ | - | | The node.
  updateMask | fieldmask | v2+ | 1 | | Paths of the fields to set.
  node | Node | v2+ | 2 | | Their values.
StopNodeRequest: Asks to stop a node.
  name | string | all | 1 | | The node.
StartNodeRequest: Asks to start a node.
  name | string | all | 1 | | The node.
ReimageNodeRequest: Asks for another version of TensorFlow.
  name | string | v1 | 1 | | The node.
  tensorflowVersion | string | v1 | 2 | | The version.
GetGuestAttributesRequest: Asks what hosts have published.
  name | string | v2+ | 1 | | The node.
  queryPath | string | v2+ | 2 | | NAMESPACE/, NAMESPACE/KEY, or nothing for all.
  workerIds | string[] | v2+ | 3 | | Numbers of the hosts; all when it is left out.
SimulateMaintenanceEventRequest: Asks for a maintenance that is none.
  name | string | alpha | 1 | | The node.
  workerIds | string[] | alpha | 2 | | Numbers of the hosts; all when it is left out.
PerformMaintenanceRequest: Asks to begin a planned maintenance now.
  name | string | alpha | 1 | | The node.
ListQueuedResourcesRequest: Asks for the queued resources of a zone.
  parent | string | v2+ | 1 | | The zone, or `-` for all zones.
  pageSize | int32 | v2+ | 2 | | The most that one page may hold.
  pageToken | string | v2+ | 3 | | The nextPageToken of the page before.
GetQueuedResourceRequest: Asks for a queued resource.
  name | string | v2+ | 1 | | The queued resource.
CreateQueuedResourceRequest: Asks for a new queued resource.
  parent | string | v2+ | 1 | | The zone.
  queuedResourceId | string | v2+ | 2 | | Its id; one is made when it is left out.
  queuedResource | QueuedResource | v2+ | 3 | | The queued resource to create.
  requestId | string | v2+ | 4 | | A UUID: the same one is carried out once.
DeleteQueuedResourceRequest: Asks to delete a queued resource.
  name | string | v2+ | 1 | | The queued resource.
  requestId | string | v2+ | 2 | | A UUID: the same one is carried out once.
  force | bool | v2+ | 3 | | Deletes its nodes first.
ResetQueuedResourceRequest: Creates the nodes of a queued resource again.
  name | string | v2+ | 1 | | The queued resource.
PerformMaintenanceQueuedResourceRequest: Asks to begin planned maintenances now.
  name | string | alpha | 1 | | The queued resource.
  nodeNames | string[] | alpha | 2 | | Its nodes; all when it is left out.
GetMaintenanceInfoRequest: Asks for the planned maintenances of a queued resource.
  name | string | alpha | - | | The queued resource.
ListReservationsRequest: Asks for the reservations of a zone.
  parent | string | alpha | 1 | | The zone, or `-` for all zones.
  pageSize | int32 | alpha | 2 | | The most that one page may hold.
  pageToken | string | alpha | 3 | | The nextPageToken of the page before.
GenerateServiceIdentityRequest: Asks for the service's account.
  parent | string | v2+ | 1 | | The zone.
ListAcceleratorTypesRequest: Asks for the types that a zone offers.
  parent | string | all | 1 | | The zone.
  pageSize | int32 | all | 2 | | The most that one page may hold.
  pageToken | string | all | 3 | | The nextPageToken of the page before.
  filter | string | all | 5 | | What the answer is narrowed to.
  orderBy | string | all | 6 | | Fields to sort by.
GetAcceleratorTypeRequest: Asks for a type.
  name | string | all | 1 | | The type.
ListRuntimeVersionsRequest: Asks for the runtime versions of a zone.
  parent | string | v2+ | 1 | | The zone.
  pageSize | int32 | v2+ | 2 | | The most that one page may hold.
  pageToken | string | v2+ | 3 | | The nextPageToken of the page before.
  filter | string | v2+ | 5 | | What the answer is narrowed to.
  orderBy | string | v2+ | 6 | | Fields to sort by.
GetRuntimeVersionRequest: Asks for a runtime version.
  name | string | v2+ | 1 | | The version.
ListTensorFlowVersionsRequest: Asks for the versions of TensorFlow of a zone.
  parent | string | v1 | 1 | | The zone.
  pageSize | int32 | v1 | 2 | | The most that one page may hold.
  pageToken | string | v1 | 3 | | The nextPageToken of the page before.
  filter | string | v1 | 5 | | What the answer is narrowed to.
  orderBy | string | v1 | 6 | | Fields to sort by.
GetTensorFlowVersionRequest: Asks for a version of TensorFlow.
  name | string | v1 | 1 | | The version.
ListOperationsRequest: Asks for the operations of a zone.
  name | string | all | - | | The zone, or `-` for all zones.
  filter | string | all | - | | What the answer is narrowed to.
  pageSize | int32 | all | - | | The most that one page may hold.
  pageToken | string | all | - | | The nextPageToken of the page before.
  returnPartialSuccess | bool | all | - | | Zones that do not answer are named in `unreachable`.
GetOperationRequest: Asks for an operation.
  name | string | all | - | | The operation.
CancelOperationRequest: Asks to cancel an operation.
  name | string | all | - | | The operation.
DeleteOperationRequest: Asks to forget an operation.
  name | string | all | - | | The operation.
ListLocationsRequest: Asks for the zones.
  name | string | all | - | | The project.
  filter | string | all | - | | What the answer is narrowed to.
  pageSize | int32 | all | - | | The most that one page may hold.
  pageToken | string | all | - | | The nextPageToken of the page before.
  extraLocationTypes | string[] | all | - | | Taken and left aside.
GetLocationRequest: Asks for a zone.
  name | string | all | - | | The zone.
"""

RESPONSES = """
ListNodesResponse: A page of nodes.
  nodes | Node[] | all | 1 | | The nodes.
  nextPageToken | string | all | 2 | | Asks for the next page; absent on the last one.
  unreachable | string[] | all | 3 | | Zones that could not be asked.
ListQueuedResourcesResponse: A page of queued resources.
  queuedResources | QueuedResource[] | v2+ | 1 | | The queued resources.
  nextPageToken | string | v2+ | 2 | | Asks for the next page; absent on the last one.
  unreachable | string[] | v2+ | 3 | | Zones that could not be asked.
ListReservationsResponse: A page of reservations.
  reservations | Reservation[] | alpha | 1 | | The reservations.
  nextPageToken | string | alpha | 2 | | Asks for the next page; absent on the last one.
ListAcceleratorTypesResponse: A page of types.
  acceleratorTypes | AcceleratorType[] | all | 1 | | The types.
  nextPageToken | string | all | 2 | | Asks for the next page; absent on the last one.
  unreachable | string[] | all | 3 | | Zones that could not be asked.
ListRuntimeVersionsResponse: A page of runtime versions.
  runtimeVersions | RuntimeVersion[] | v2+ | 1 | | The versions.
  nextPageToken | string | v2+ | 2 | | Asks for the next page; absent on the last one.
  unreachable | string[] | v2+ | 3 | | Zones that could not be asked.
ListTensorFlowVersionsResponse: A page of versions of TensorFlow.
  tensorflowVersions | TensorFlowVersion[] | v1 | 1 | | The versions.
  nextPageToken | string | v1 | 2 | | Asks for the next page; absent on the last one.
  unreachable | string[] | v1 | 3 | | Zones that could not be asked.
ListOperationsResponse: A page of operations.
  operations | Operation[] | all | - | | The operations.
  nextPageToken | string | all | - | | Asks for the next page; absent on the last one.
  unreachable | string[] | all | - | | Zones that could not be asked.
ListLocationsResponse: A page of zones.
  locations | Location[] | all | - | | The zones.
  nextPageToken | string | all | - | | Asks for the next page; absent on the last one.
GetGuestAttributesResponse: What hosts have published.
  guestAttributes | GuestAttributes[] | v2+ | 1 | | One entry for each host.
GenerateServiceIdentityResponse: The service's account.
  identity | ServiceIdentity | v2+ | 1 | | The account.
GetMaintenanceInfoResponse: The planned maintenances of a queued resource.
  nodeUpcomingMaintenances | NodeUpcomingMaintenanceInfo[] | alpha | - | | One entry for each node.
"""

METHODS = """
list | ListLocations | GET | {name}/locations | - | ListLocationsResponse | all | tpu.locations.list | Lists zones.
get | GetLocation | GET | {name=L} | - | Location | all | tpu.locations.get | Shows a zone.
generateServiceIdentity | GenerateServiceIdentity | POST | {parent=L}:generateServiceIdentity | * | \
GenerateServiceIdentityResponse | v2+ | tpu.locations.get | Names the account that the service acts as.
nodes.list | ListNodes | GET | {parent=L}/nodes | - | ListNodesResponse | all | tpu.nodes.list | Lists nodes.
nodes.get | GetNode | GET | {name=L/nodes} | - | Node | all | tpu.nodes.get | Shows a node.
nodes.create | CreateNode | POST | {parent=L}/nodes | node | Operation | all | tpu.nodes.create | Creates a node.
nodes.delete | DeleteNode | DELETE | {name=L/nodes} | - | Operation | all | tpu.nodes.delete | Deletes a node.
nodes.patch | UpdateNode | PATCH | {name=L/nodes} | node | Operation | v2+ | tpu.nodes.update | Changes a node.
nodes.stop | StopNode | POST | {name=L/nodes}:stop | * | Operation | all | tpu.nodes.stop | Stops a node of one host.
nodes.start | StartNode | POST | {name=L/nodes}:start | * | Operation | all | tpu.nodes.start | Starts a stopped node.
nodes.reimage | ReimageNode | POST | {name=L/nodes}:reimage | * | Operation | v1 | tpu.nodes.reimage | \
Puts another version of TensorFlow on a node.
nodes.getGuestAttributes | GetGuestAttributes | POST | {name=L/nodes}:getGuestAttributes | * | \
GetGuestAttributesResponse | v2+ | tpu.nodes.get | Shows what hosts have published.
nodes.simulateMaintenanceEvent | SimulateMaintenanceEvent | POST | {name=L/nodes}:simulateMaintenanceEvent | * | \
Operation | alpha | tpu.nodes.simulateMaintenanceEvent | Plays a maintenance.
nodes.performMaintenance | PerformMaintenance | POST | {name=L/nodes}:performMaintenance | * | Operation | alpha | \
tpu.nodes.performMaintenance | Begins a planned maintenance.
queuedResources.list | ListQueuedResources | GET | {parent=L}/queuedResources | - | ListQueuedResourcesResponse | \
v2+ | tpu.queuedresources.list | Lists queued resources.
queuedResources.get | GetQueuedResource | GET | {name=L/queuedResources} | - | QueuedResource | v2+ | \
tpu.queuedresources.get | Shows a queued resource.
queuedResources.create | CreateQueuedResource | POST | {parent=L}/queuedResources | queuedResource | Operation | v2+ | \
tpu.queuedresources.create | Asks for nodes that may wait.
queuedResources.delete | DeleteQueuedResource | DELETE | {name=L/queuedResources} | - | Operation | v2+ | \
tpu.queuedresources.delete | Deletes a queued resource.
queuedResources.reset | ResetQueuedResource | POST | {name=L/queuedResources}:reset | * | Operation | v2+ | \
tpu.queuedresources.reset | Creates the nodes of a queued resource again.
queuedResources.performMaintenanceQueuedResource | PerformMaintenanceQueuedResource | POST | \
{name=L/queuedResources}:performMaintenanceQueuedResource | * | Operation | alpha | tpu.nodes.performMaintenance | \
Begins planned maintenances.
queuedResources.getMaintenanceInfo | GetMaintenanceInfo | GET | {name=L/queuedResources}:getMaintenanceInfo | - | \
GetMaintenanceInfoResponse | alpha | tpu.queuedresources.get | Shows the planned maintenances.
reservations.list | ListReservations | GET | {parent=L}/reservations | - | ListReservationsResponse | alpha | \
tpu.reservations.list | Lists reservations.
acceleratorTypes.list | ListAcceleratorTypes | GET | {parent=L}/acceleratorTypes | - | ListAcceleratorTypesResponse | \
all | tpu.acceleratortypes.list | Lists the types of a zone.
acceleratorTypes.get | GetAcceleratorType | GET | {name=L/acceleratorTypes} | - | AcceleratorType | all | \
tpu.acceleratortypes.get | Shows a type.
runtimeVersions.list | ListRuntimeVersions | GET | {parent=L}/runtimeVersions | - | ListRuntimeVersionsResponse | \
v2+ | tpu.runtimeversions.list | Lists the runtime versions of a zone.
runtimeVersions.get | GetRuntimeVersion | GET | {name=L/runtimeVersions} | - | RuntimeVersion | v2+ | \
tpu.runtimeversions.get | Shows a runtime version.
tensorflowVersions.list | ListTensorFlowVersions | GET | {parent=L}/tensorflowVersions | - | \
ListTensorFlowVersionsResponse | v1 | tpu.tensorflowversions.list | Lists the versions of TensorFlow of a zone.
tensorflowVersions.get | GetTensorFlowVersion | GET | {name=L/tensorflowVersions} | - | TensorFlowVersion | v1 | \
tpu.tensorflowversions.get | Shows a version of TensorFlow.
operations.list | ListOperations | GET | {name=L}/operations | - | ListOperationsResponse | all | \
tpu.operations.list | Lists operations.
operations.get | GetOperation | GET | {name=L/operations} | - | Operation | all | tpu.operations.get | \
Shows an operation.
operations.delete | DeleteOperation | DELETE | {name=L/operations} | - | Empty | all | tpu.operations.delete | \
Forgets an operation that has ended.
operations.cancel | CancelOperation | POST | {name=L/operations}:cancel | * | Empty | all | tpu.operations.cancel | \
Asks to cancel an operation.
"""  # noqa: E501
