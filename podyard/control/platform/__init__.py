"""What every other room stands on: operations, the clock, request ids, webhooks, quotas of
calls."""
