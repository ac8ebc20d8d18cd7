"""The unit of work, state transitions, and what each unit may need."""
