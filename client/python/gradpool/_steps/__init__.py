"""Optimizers whose steps are done by lanes, with transfer of parameters and moments in both
directions."""
