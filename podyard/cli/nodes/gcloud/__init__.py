"""Settings of gcloud in a data folder."""
