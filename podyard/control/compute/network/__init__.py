"""Networks of Compute Engine: subnetworks, firewall rules, addresses."""
