"""Parts that the API and the console share: authentication, the error envelope, limits."""
