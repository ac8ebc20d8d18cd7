"""Google's IAM: policies and service accounts."""
