"""Managed instance groups, zonal and regional, templates and resource policies."""

from __future__ import annotations

MESSAGES = """
InstanceTemplate: A description of the instances of groups.
  creationTimestamp! description id:int64! kind! name properties:InstanceProperties region!
  selfLink! sourceInstance
ResourcePolicy: A policy of workloads or of placement.
  creationTimestamp! description groupPlacementPolicy:ResourcePolicyGroupPlacementPolicy id:int64!
  kind! name region! selfLink! status:CREATING|DELETING|EXPIRED|INVALID|READY!
  workloadPolicy:ResourcePolicyWorkloadPolicy
InstanceGroupManager: A managed group.
  allInstancesConfig:InstanceGroupManagerAllInstancesConfig
  autoHealingPolicies:InstanceGroupManagerAutoHealingPolicy[] baseInstanceName creationTimestamp!
  currentActions:InstanceGroupManagerActionsSummary! description
  distributionPolicy:DistributionPolicy fingerprint:bytes id:int64! instanceGroup!
  instanceLifecyclePolicy:InstanceGroupManagerInstanceLifecyclePolicy instanceTemplate kind!
  listManagedInstancesResults:PAGELESS|PAGINATED name namedPorts:NamedPort[] region!
  resourcePolicies:InstanceGroupManagerResourcePolicies satisfiesPzi:bool! satisfiesPzs:bool!
  selfLink! standbyPolicy:InstanceGroupManagerStandbyPolicy status:InstanceGroupManagerStatus!
  targetPools:[] targetSize:int32 targetSizePolicy:InstanceGroupManagerTargetSizePolicy
  targetStoppedSize:int32 targetSuspendedSize:int32 updatePolicy:InstanceGroupManagerUpdatePolicy
  versions:InstanceGroupManagerVersion[] zone!
InstanceGroupManagersListManagedInstancesResponse: The instances of a zonal group.
  managedInstances:ManagedInstance[]! nextPageToken!
RegionInstanceGroupManagersListInstancesResponse: The instances of a regional group.
  managedInstances:ManagedInstance[] nextPageToken!
InstanceGroupManagersListErrorsResponse: Failures in a zonal group, the newest first.
  items:InstanceManagedByIgmError[]! nextPageToken!
RegionInstanceGroupManagersListErrorsResponse: Failures in a regional group, the newest first.
  items:InstanceManagedByIgmError[]! nextPageToken!
InstanceGroupManagersDeleteInstancesRequest: Names instances of a zonal group.
  instances:[] skipInstancesOnValidationError:bool
RegionInstanceGroupManagersDeleteInstancesRequest: Names instances of a regional group.
  instances:[] skipInstancesOnValidationError:bool
InstanceGroupManagerResizeRequest: Asks for more instances, when there is room for all.
  creationTimestamp! description id:int64! kind! name region! requestedRunDuration:Duration
  resizeBy:int32 selfLink! selfLinkWithId!
  state:ACCEPTED|CANCELLED|CREATING|FAILED|SUCCEEDED! zone!
ResourcePolicyGroupPlacementPolicy: How near to each other instances are.
  acceleratorTopologyMode:AUTO_CONNECT|PROVISION_ONLY availabilityDomainCount:int32
  collocation gpuTopology vmCount:int32
ResourcePolicyWorkloadPolicy: The purpose of a group's instances.
  acceleratorTopology acceleratorTopologyMode:AUTO_CONNECT|PROVISION_ONLY
  maxTopologyDistance:BLOCK|CLUSTER|SUBBLOCK type:HIGH_AVAILABILITY|HIGH_THROUGHPUT
InstanceGroupManagerAllInstancesConfig: Instance group manager all instances config.

InstanceGroupManagerAutoHealingPolicy: Instance group manager auto healing policy.
  healthCheck initialDelaySec:int32
InstanceGroupManagerActionsSummary: Instance group manager actions summary.
  abandoning:int32! creating:int32! creatingWithoutRetries:int32! deleting:int32! none:int32!
  recreating:int32! refreshing:int32! restarting:int32! resuming:int32! starting:int32!
  stopping:int32! suspending:int32! verifying:int32!
DistributionPolicy: Distribution policy.
  targetShape:ANY|ANY_SINGLE_ZONE|BALANCED|EVEN zones:DistributionPolicyZoneConfiguration[]
InstanceGroupManagerInstanceLifecyclePolicy: The consequence of an instance's failure.
  defaultActionOnFailure:DO_NOTHING|REPAIR forceUpdateOnRepair:NO|YES
  onFailedHealthCheck:DEFAULT_ACTION|DO_NOTHING|REPAIR
NamedPort: Named port.
  name port:int32
InstanceGroupManagerResourcePolicies: The policies of a group.
  workloadPolicy
InstanceGroupManagerStandbyPolicy: Instance group manager standby policy.
  initialDelaySec:int32 mode:MANUAL|SCALE_OUT_POOL
InstanceGroupManagerStatus: How far a group is.
  appliedAcceleratorTopologies:InstanceGroupManagerStatusAcceleratorTopology[]! autoscaler!
  isStable:bool! versionTarget:InstanceGroupManagerStatusVersionTarget!
InstanceGroupManagerTargetSizePolicy: Whether instances are made one by one, or all at once.
  mode:BULK|INDIVIDUAL
InstanceGroupManagerUpdatePolicy: Instance group manager update policy.
  instanceRedistributionType:NONE|PROACTIVE maxSurge:FixedOrPercent maxUnavailable:FixedOrPercent
  minimalAction:NONE|REFRESH|REPLACE|RESTART
  mostDisruptiveAllowedAction:NONE|REFRESH|REPLACE|RESTART replacementMethod:RECREATE|SUBSTITUTE
  type:OPPORTUNISTIC|PROACTIVE
InstanceGroupManagerVersion: A template that a group uses.
  instanceTemplate name targetSize:FixedOrPercent
ManagedInstance: An instance of a group.
  currentAction:ABANDONING|CREATING|CREATING_WITHOUT_RETRIES|DELETING|NONE|RECREATING|REFRESHING|RESTARTING|RESUMING|STARTING|STOPPING|SUSPENDING|VERIFYING!
  id:int64! instance!
  instanceStatus:DEPROVISIONING|PENDING|PENDING_STOP|PROVISIONING|REPAIRING|RUNNING|STAGING|STOPPED|STOPPING|SUSPENDED|SUSPENDING|TERMINATED!
  lastAttempt:ManagedInstanceLastAttempt! name!
  targetStatus:ABANDONED|DELETED|INVALID|RUNNING|STOPPED|SUSPENDED! version:ManagedInstanceVersion!
InstanceManagedByIgmError: A failure in a group.
  error:InstanceManagedByIgmErrorManagedInstanceError!
  instanceActionDetails:InstanceManagedByIgmErrorInstanceActionDetails! timestamp!
DistributionPolicyZoneConfiguration: Distribution policy zone configuration.
  zone
InstanceGroupManagerStatusAcceleratorTopology: The slice that the instances of a group make.
  acceleratorTopology!
  state:ACTIVATING|ACTIVE|ACTIVE_DEGRADED|DEACTIVATING|FAILED|INCOMPLETE|REACTIVATING!
  stateDetails:InstanceGroupManagerStatusAcceleratorTopologyAcceleratorTopologyStateDetails!
InstanceGroupManagerStatusVersionTarget: Instance group manager status version target.
  isReached:bool!
FixedOrPercent: Fixed or percent.
  calculated:int32! fixed:int32 percent:int32
ManagedInstanceLastAttempt: Managed instance last attempt.

ManagedInstanceVersion: Managed instance version.
  instanceTemplate! name!
InstanceManagedByIgmErrorManagedInstanceError: Instance managed by igm error managed instance error.
  code! message!
InstanceManagedByIgmErrorInstanceActionDetails: Instance managed by igm error instance action details.
  action:ABANDONING|CREATING|CREATING_WITHOUT_RETRIES|DELETING|NONE|RECREATING|REFRESHING|RESTARTING|RESUMING|STARTING|STOPPING|SUSPENDING|VERIFYING!
  instance! version:ManagedInstanceVersion!
InstanceGroupManagerStatusAcceleratorTopologyAcceleratorTopologyStateDetails: Instance group manager status accelerator topology accelerator topology state details.
  timestamp!
"""  # noqa: E501

METHODS = """
resourcePolicies.list | GET | projects/{project}/regions/{region}/resourcePolicies | @list | | ResourcePolicy[] | \
compute.resourcePolicies.list | Lists the resource policies of a region.
resourcePolicies.aggregatedList | GET | projects/{project}/aggregated/resourcePolicies | @aggregated | | \
ResourcePolicy{} | compute.resourcePolicies.list | Lists the resource policies of all regions.
resourcePolicies.get | GET | projects/{project}/regions/{region}/resourcePolicies/{resourcePolicy} | | | ResourcePolicy | \
compute.resourcePolicies.get | Shows a resource policy.
resourcePolicies.insert | POST | projects/{project}/regions/{region}/resourcePolicies | @change | ResourcePolicy | \
Operation | compute.resourcePolicies.create | Makes a resource policy.
resourcePolicies.delete | DELETE | projects/{project}/regions/{region}/resourcePolicies/{resourcePolicy} | @change | | \
Operation | compute.resourcePolicies.delete | Deletes a resource policy.
instanceTemplates.aggregatedList | GET | projects/{project}/aggregated/instanceTemplates | @aggregated | | \
InstanceTemplate{} | compute.instanceTemplates.list | Lists the instance templates of all places.
instanceTemplates.list | GET | projects/{project}/global/instanceTemplates | @list | | InstanceTemplate[] | \
compute.instanceTemplates.list | Lists instance templates.
instanceTemplates.get | GET | projects/{project}/global/instanceTemplates/{instanceTemplate} | | | InstanceTemplate | \
compute.instanceTemplates.get | Shows an instance template.
instanceTemplates.insert | POST | projects/{project}/global/instanceTemplates | @change | InstanceTemplate | Operation | \
compute.instanceTemplates.create | Makes an instance template.
instanceTemplates.delete | DELETE | projects/{project}/global/instanceTemplates/{instanceTemplate} | @change | | Operation | \
compute.instanceTemplates.delete | Deletes an instance template.
regionInstanceTemplates.list | GET | projects/{project}/regions/{region}/instanceTemplates | @list | | InstanceTemplate[] | \
compute.instanceTemplates.list | Lists instance templates.
regionInstanceTemplates.get | GET | projects/{project}/regions/{region}/instanceTemplates/{instanceTemplate} | | | InstanceTemplate | \
compute.instanceTemplates.get | Shows an instance template.
regionInstanceTemplates.insert | POST | projects/{project}/regions/{region}/instanceTemplates | @change | InstanceTemplate | Operation | \
compute.instanceTemplates.create | Makes an instance template.
regionInstanceTemplates.delete | DELETE | projects/{project}/regions/{region}/instanceTemplates/{instanceTemplate} | @change | | Operation | \
compute.instanceTemplates.delete | Deletes an instance template.
instanceGroupManagers.aggregatedList | GET | projects/{project}/aggregated/instanceGroupManagers | @aggregated | | \
InstanceGroupManager{} | compute.instanceGroupManagers.list | Lists the managed groups of all places.
instanceGroupManagerResizeRequests.list | GET | \
projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/resizeRequests | @list | | InstanceGroupManagerResizeRequest[] | \
compute.instanceGroupManagers.get | Lists the resize requests of a group.
instanceGroupManagerResizeRequests.get | GET | \
projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/resizeRequests/{resizeRequest} | | | InstanceGroupManagerResizeRequest | \
compute.instanceGroupManagers.get | Shows a resize request.
instanceGroupManagerResizeRequests.delete | DELETE | \
projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/resizeRequests/{resizeRequest} | @change | | Operation | \
compute.instanceGroupManagers.update | Deletes a resize request, and not its instances.
instanceGroupManagerResizeRequests.cancel | POST | \
projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/resizeRequests/{resizeRequest}/cancel | @change | | Operation | \
compute.instanceGroupManagers.update | Is refused: no resize request waits.
instanceGroupManagerResizeRequests.insert | POST | \
projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/resizeRequests | @change | InstanceGroupManagerResizeRequest | \
Operation | compute.instanceGroupManagers.update | Is refused: managed groups with TPUs have none.
instanceGroupManagers.list | GET | projects/{project}/zones/{zone}/instanceGroupManagers | @list | | InstanceGroupManager[] | \
compute.instanceGroupManagers.list | Lists managed groups.
instanceGroupManagers.get | GET | projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager} | | | InstanceGroupManager | \
compute.instanceGroupManagers.get | Shows a managed group.
instanceGroupManagers.insert | POST | projects/{project}/zones/{zone}/instanceGroupManagers | @change | InstanceGroupManager | Operation | \
compute.instanceGroupManagers.create | Makes a managed group.
instanceGroupManagers.patch | PATCH | projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager} | @change | InstanceGroupManager | Operation | \
compute.instanceGroupManagers.update | Changes a managed group.
instanceGroupManagers.delete | DELETE | projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager} | @change | | Operation | \
compute.instanceGroupManagers.delete | Deletes a managed group with its instances.
instanceGroupManagers.resize | POST | projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/resize | @change size:int32! | | Operation | \
compute.instanceGroupManagers.update | Changes the size of a managed group.
instanceGroupManagers.listManagedInstances | POST | projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/listManagedInstances | @list | | InstanceGroupManagersListManagedInstancesResponse | \
compute.instanceGroupManagers.get | Lists the instances of a managed group.
instanceGroupManagers.listErrors | GET | projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/listErrors | @list | | InstanceGroupManagersListErrorsResponse | \
compute.instanceGroupManagers.get | Lists what has failed in a managed group.
instanceGroupManagers.deleteInstances | POST | projects/{project}/zones/{zone}/instanceGroupManagers/{instanceGroupManager}/deleteInstances | @change | InstanceGroupManagersDeleteInstancesRequest | Operation | \
compute.instanceGroupManagers.update | Deletes instances of a managed group.
regionInstanceGroupManagers.list | GET | projects/{project}/regions/{region}/instanceGroupManagers | @list | | InstanceGroupManager[] | \
compute.instanceGroupManagers.list | Lists managed groups.
regionInstanceGroupManagers.get | GET | projects/{project}/regions/{region}/instanceGroupManagers/{instanceGroupManager} | | | InstanceGroupManager | \
compute.instanceGroupManagers.get | Shows a managed group.
regionInstanceGroupManagers.insert | POST | projects/{project}/regions/{region}/instanceGroupManagers | @change | InstanceGroupManager | Operation | \
compute.instanceGroupManagers.create | Makes a managed group.
regionInstanceGroupManagers.patch | PATCH | projects/{project}/regions/{region}/instanceGroupManagers/{instanceGroupManager} | @change | InstanceGroupManager | Operation | \
compute.instanceGroupManagers.update | Changes a managed group.
regionInstanceGroupManagers.delete | DELETE | projects/{project}/regions/{region}/instanceGroupManagers/{instanceGroupManager} | @change | | Operation | \
compute.instanceGroupManagers.delete | Deletes a managed group with its instances.
regionInstanceGroupManagers.resize | POST | projects/{project}/regions/{region}/instanceGroupManagers/{instanceGroupManager}/resize | @change size:int32! | | Operation | \
compute.instanceGroupManagers.update | Changes the size of a managed group.
regionInstanceGroupManagers.listManagedInstances | POST | projects/{project}/regions/{region}/instanceGroupManagers/{instanceGroupManager}/listManagedInstances | @list | | RegionInstanceGroupManagersListInstancesResponse | \
compute.instanceGroupManagers.get | Lists the instances of a managed group.
regionInstanceGroupManagers.listErrors | GET | projects/{project}/regions/{region}/instanceGroupManagers/{instanceGroupManager}/listErrors | @list | | RegionInstanceGroupManagersListErrorsResponse | \
compute.instanceGroupManagers.get | Lists what has failed in a managed group.
regionInstanceGroupManagers.deleteInstances | POST | projects/{project}/regions/{region}/instanceGroupManagers/{instanceGroupManager}/deleteInstances | @change | RegionInstanceGroupManagersDeleteInstancesRequest | Operation | \
compute.instanceGroupManagers.update | Deletes instances of a managed group.
"""  # noqa: E501
