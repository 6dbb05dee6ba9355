"""Divisions of convolutions by measurement: every one that may be chosen is verified, the fastest is kept."""
