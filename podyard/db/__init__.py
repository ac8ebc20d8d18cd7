"""Tables, units of work, leases, outbox and the one writer of state. No decisions."""
