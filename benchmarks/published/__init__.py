"""Published training steps of real slices, next to Podyard's estimates of the trainer itself."""
