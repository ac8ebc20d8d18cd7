"""Log entries and time series, as Cloud Logging and Cloud Monitoring have them."""
