"""Optimizers whose steps are done by lanes, and the exchange of parameters and moments with the
lanes."""
