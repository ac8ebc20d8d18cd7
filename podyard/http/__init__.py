"""What the API and the console share: authentication, the error envelope, limits."""
