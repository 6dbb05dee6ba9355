"""Programs: chains, rows and columns by one generator with a geometry. `lower` is the way in."""
