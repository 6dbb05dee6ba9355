"""Boundary: what the oracle and a candidate's process must do alike, since one is compared with the other."""
