"""The boosting engine: binning, objective, growing, fitting, state and the in-place update."""
