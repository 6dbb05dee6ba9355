"""A candidate that holds this line and nothing else. Expected: does-not-import."""
