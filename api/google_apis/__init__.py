"""Google's APIs that launchers ask before they make a machine: projects and their policies, service
accounts, enabled services, billing, logs and metrics."""
