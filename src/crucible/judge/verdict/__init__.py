"""Verdicts: what can become of a candidate, and the evidence for it. Records only; nothing here needs torch."""
