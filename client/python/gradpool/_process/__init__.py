"""One process: what all doors of the package share in it."""
