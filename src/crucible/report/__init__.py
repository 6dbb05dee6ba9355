"""Reports: a run as a terminal table or as JSON."""
