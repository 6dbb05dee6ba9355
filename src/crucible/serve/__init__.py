"""serve: the judge as an HTTP service over the fleet's ledger. See docs/serve.md."""
