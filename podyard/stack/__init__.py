"""The processes of one data folder, and the folder as a whole: supervise, back up, copy."""
