"""The room under all others: operations, the clock, request ids, webhooks, quotas of calls."""
