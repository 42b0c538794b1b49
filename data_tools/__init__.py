"""Preference data without the training stack: make, read, check and write records as JSON lines."""
