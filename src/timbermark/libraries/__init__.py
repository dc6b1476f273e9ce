"""Models of other libraries, read into an Ensemble and written back in their own form."""
