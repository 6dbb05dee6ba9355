"""The worker: what runs inside a candidate's process. Nothing decided here counts."""
