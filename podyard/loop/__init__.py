"""The control loop: one leader places, fires timers, reconciles and sends the outbox."""
