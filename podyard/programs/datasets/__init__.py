"""Published data sets that programs download: their downloads are answered from a folder that the
user fills (`podyard dataset add`), so that they work without internet."""
