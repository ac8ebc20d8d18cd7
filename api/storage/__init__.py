"""Google Cloud Storage's JSON and XML APIs."""
