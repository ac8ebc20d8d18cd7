"""The console's page that resizes a job to another accelerator type."""
