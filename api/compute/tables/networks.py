"""Networks, subnetworks, firewall rules, addresses, routers and routes."""

from __future__ import annotations

MESSAGES = """
Network: A network of a project.
  IPv4Range autoCreateSubnetworks:bool creationTimestamp! description gatewayIPv4! id:int64! kind!
  mtu:int32 name
  networkFirewallPolicyEnforcementOrder:AFTER_CLASSIC_FIREWALL|BEFORE_CLASSIC_FIREWALL
  routingConfig:NetworkRoutingConfig selfLink! selfLinkWithId! subnetworks:[]!
NetworkRoutingConfig: How far a network's routes reach.
  bgpBestPathSelectionMode:LEGACY|STANDARD routingMode:GLOBAL|REGIONAL
Subnetwork: A range of a network in a region.
  creationTimestamp! description enableFlowLogs:bool fingerprint:bytes gatewayAddress! id:int64!
  ipCidrRange kind! logConfig:SubnetworkLogConfig name network privateIpGoogleAccess:bool
  privateIpv6GoogleAccess:DISABLE_GOOGLE_ACCESS|ENABLE_BIDIRECTIONAL_ACCESS_TO_GOOGLE|\
ENABLE_OUTBOUND_VM_ACCESS_TO_GOOGLE
  purpose:GLOBAL_MANAGED_PROXY|INTERNAL_HTTPS_LOAD_BALANCER|PRIVATE|PRIVATE_NAT|\
PRIVATE_RFC_1918|PRIVATE_SERVICE_CONNECT|REGIONAL_MANAGED_PROXY
  region role:ACTIVE|BACKUP secondaryIpRanges:SubnetworkSecondaryRange[] selfLink!
  stackType:IPV4_IPV6|IPV4_ONLY|IPV6_ONLY state:DRAINING|READY!
UsableSubnetwork: A subnetwork that instances may be in.
  ipCidrRange network
  purpose:GLOBAL_MANAGED_PROXY|INTERNAL_HTTPS_LOAD_BALANCER|PRIVATE|PRIVATE_NAT|\
PRIVATE_RFC_1918|PRIVATE_SERVICE_CONNECT|REGIONAL_MANAGED_PROXY
  role:ACTIVE|BACKUP secondaryIpRanges:UsableSubnetworkSecondaryRange[]
  stackType:IPV4_IPV6|IPV4_ONLY|IPV6_ONLY subnetwork
UsableSubnetworkSecondaryRange: A range besides the first.
  ipCidrRange rangeName
SubnetworksExpandIpCidrRangeRequest: Asks for a larger range.
  ipCidrRange
SubnetworksSetPrivateIpGoogleAccessRequest: Asks for access to Google's APIs, or for none.
  privateIpGoogleAccess:bool
RegionSetLabelsRequest: Asks for other labels.
  labelFingerprint:bytes labels:map
GlobalSetLabelsRequest: Asks for other labels.
  labelFingerprint:bytes labels:map
SubnetworkLogConfig: Logs of a subnetwork's traffic.
  enable:bool filterExpr flowSampling:double
SubnetworkSecondaryRange: A range besides the first.
  ipCidrRange rangeName
Firewall: A rule of what may reach the hosts of a network, or leave them.
  allowed:FirewallEntry[] creationTimestamp! denied:FirewallEntry[] description
  destinationRanges:[] direction:EGRESS|INGRESS disabled:bool id:int64! kind!
  logConfig:FirewallLogConfig name network priority:int32 selfLink! sourceRanges:[]
  sourceServiceAccounts:[] sourceTags:[] targetServiceAccounts:[] targetTags:[]
FirewallEntry: A protocol and its ports.
  IPProtocol ports:[]
FirewallLogConfig: Logs of a rule.
  enable:bool metadata:EXCLUDE_ALL_METADATA|INCLUDE_ALL_METADATA
NetworksGetEffectiveFirewallsResponse: The rules of a network that are in force.
  firewalls:Firewall[]
Address: A reserved address.
  address addressType:EXTERNAL|INTERNAL|UNSPECIFIED_TYPE creationTimestamp! description id:int64!
  ipVersion:IPV4|IPV6|UNSPECIFIED_VERSION kind! labelFingerprint:bytes labels:map name network
  networkTier:FIXED_STANDARD|PREMIUM|STANDARD|STANDARD_OVERRIDES_FIXED_STANDARD prefixLength:int32
  purpose:DNS_RESOLVER|GCE_ENDPOINT|NAT_AUTO|PRIVATE_SERVICE_CONNECT|SHARED_LOADBALANCER_VIP|VPC_PEERING
  region! selfLink! status:IN_USE|RESERVED|RESERVING! subnetwork users:[]!
Router: A router of a network; Podyard has none.
  creationTimestamp! description id:int64! kind! name network region! selfLink!
Route: The way that packets take out of a network, or inside of it.
  creationTimestamp! description destRange id:int64! kind! name network nextHopGateway
  nextHopNetwork priority:int32 routeType:BGP|STATIC|SUBNET|TRANSIT! selfLink! tags:[]
"""

METHODS = """
networks.list | GET | projects/{project}/global/networks | @list | | Network[] | compute.networks.list | \
Lists networks.
networks.get | GET | projects/{project}/global/networks/{network} | | | Network | compute.networks.get | \
Shows a network.
networks.insert | POST | projects/{project}/global/networks | @change | Network | Operation | \
compute.networks.create | Makes a network.
networks.patch | PATCH | projects/{project}/global/networks/{network} | @change | Network | Operation | \
compute.networks.update | Changes a network.
networks.delete | DELETE | projects/{project}/global/networks/{network} | @change | | Operation | \
compute.networks.delete | Deletes a network.
networks.switchToCustomMode | POST | projects/{project}/global/networks/{network}/switchToCustomMode | @change | | \
Operation | compute.networks.switchToCustomMode | Stores the subnetworks of a network of auto mode.
networks.getEffectiveFirewalls | GET | projects/{project}/global/networks/{network}/getEffectiveFirewalls | | | \
NetworksGetEffectiveFirewallsResponse | compute.networks.getEffectiveFirewalls | Shows the rules of a network.
subnetworks.list | GET | projects/{project}/regions/{region}/subnetworks | @list | | Subnetwork[] | \
compute.subnetworks.list | Lists the subnetworks of a region.
subnetworks.aggregatedList | GET | projects/{project}/aggregated/subnetworks | @aggregated | | Subnetwork{} | \
compute.subnetworks.list | Lists the subnetworks of all regions.
subnetworks.get | GET | projects/{project}/regions/{region}/subnetworks/{subnetwork} | | | Subnetwork | \
compute.subnetworks.get | Shows a subnetwork.
subnetworks.insert | POST | projects/{project}/regions/{region}/subnetworks | @change | Subnetwork | Operation | \
compute.subnetworks.create | Makes a subnetwork.
subnetworks.patch | PATCH | projects/{project}/regions/{region}/subnetworks/{subnetwork} | @change | Subnetwork | \
Operation | compute.subnetworks.update | Changes a subnetwork.
subnetworks.delete | DELETE | projects/{project}/regions/{region}/subnetworks/{subnetwork} | @change | | Operation | \
compute.subnetworks.delete | Deletes a subnetwork.
subnetworks.listUsable | GET | projects/{project}/aggregated/subnetworks/listUsable | @list | | UsableSubnetwork[] | \
compute.subnetworks.list | Lists the subnetworks that instances may be in.
subnetworks.expandIpCidrRange | POST | projects/{project}/regions/{region}/subnetworks/{subnetwork}/expandIpCidrRange | @change | \
SubnetworksExpandIpCidrRangeRequest | Operation | compute.subnetworks.expandIpCidrRange | Makes the range of a subnetwork larger.
subnetworks.setPrivateIpGoogleAccess | POST | projects/{project}/regions/{region}/subnetworks/{subnetwork}/setPrivateIpGoogleAccess | @change | \
SubnetworksSetPrivateIpGoogleAccessRequest | Operation | compute.subnetworks.setPrivateIpGoogleAccess | \
Keeps whether a subnetwork has access to Google's APIs.
firewalls.list | GET | projects/{project}/global/firewalls | @list | | Firewall[] | compute.firewalls.list | \
Lists firewall rules.
firewalls.get | GET | projects/{project}/global/firewalls/{firewall} | | | Firewall | compute.firewalls.get | \
Shows a rule.
firewalls.insert | POST | projects/{project}/global/firewalls | @change | Firewall | Operation | \
compute.firewalls.create | Makes a rule.
firewalls.patch | PATCH | projects/{project}/global/firewalls/{firewall} | @change | Firewall | Operation | \
compute.firewalls.update | Changes a rule.
firewalls.update | PUT | projects/{project}/global/firewalls/{firewall} | @change | Firewall | Operation | \
compute.firewalls.update | Replaces a rule.
firewalls.delete | DELETE | projects/{project}/global/firewalls/{firewall} | @change | | Operation | \
compute.firewalls.delete | Deletes a rule.
addresses.list | GET | projects/{project}/regions/{region}/addresses | @list | | Address[] | compute.addresses.list | \
Lists the addresses of a region.
addresses.aggregatedList | GET | projects/{project}/aggregated/addresses | @aggregated | | Address{} | \
compute.addresses.list | Lists the addresses of all regions.
addresses.get | GET | projects/{project}/regions/{region}/addresses/{address} | | | Address | \
compute.addresses.get | Shows an address.
addresses.insert | POST | projects/{project}/regions/{region}/addresses | @change | Address | Operation | \
compute.addresses.create | Reserves an address.
addresses.delete | DELETE | projects/{project}/regions/{region}/addresses/{address} | @change | | Operation | \
compute.addresses.delete | Releases an address.
addresses.setLabels | POST | projects/{project}/regions/{region}/addresses/{resource}/setLabels | @change | RegionSetLabelsRequest | Operation | \
compute.addresses.setLabels | Replaces the labels of an address.
globalAddresses.list | GET | projects/{project}/global/addresses | @list | | Address[] | compute.globalAddresses.list | \
Lists the addresses that belong to no region.
globalAddresses.get | GET | projects/{project}/global/addresses/{address} | | | Address | \
compute.globalAddresses.get | Shows an address.
globalAddresses.insert | POST | projects/{project}/global/addresses | @change | Address | Operation | \
compute.globalAddresses.create | Reserves an address.
globalAddresses.delete | DELETE | projects/{project}/global/addresses/{address} | @change | | Operation | \
compute.globalAddresses.delete | Releases an address.
globalAddresses.setLabels | POST | projects/{project}/global/addresses/{resource}/setLabels | | \
GlobalSetLabelsRequest | Operation | compute.globalAddresses.setLabels | Replaces the labels of an address.
routers.list | GET | projects/{project}/regions/{region}/routers | @list | | Router[] | compute.routers.list | \
Lists routers: there are none.
routers.aggregatedList | GET | projects/{project}/aggregated/routers | @aggregated | | Router{} | \
compute.routers.list | Lists the routers of all regions: there are none.
routers.get | GET | projects/{project}/regions/{region}/routers/{router} | | | Router | compute.routers.get | \
Shows a router.
routes.list | GET | projects/{project}/global/routes | @list | | Route[] | compute.routes.list | \
Lists the routes of all networks.
routes.get | GET | projects/{project}/global/routes/{route} | | | Route | compute.routes.get | Shows a route.
"""  # noqa: E501
