"""Processes: candidates and the oracle as the judge starts, confines, watches, asks and ends them."""
