"""Published data sets that programs find without internet."""
