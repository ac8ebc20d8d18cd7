"""Pages of nodes, pods and queued resources."""
