"""The proxy of `podyard run` for clients with hard-coded Google addresses."""
