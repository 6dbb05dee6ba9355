"""Many candidates, many workers, one ledger: what is submitted is judged once, whatever dies on the way."""
