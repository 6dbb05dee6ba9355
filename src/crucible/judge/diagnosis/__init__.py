"""Diagnosis: why an answer is wrong, and where. No verdict depends on it."""
