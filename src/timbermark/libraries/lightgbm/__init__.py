"""LightGBM: `Booster`, its classifier, regressor and ranker, and text model files.

`text` takes the library's text apart and prints it again, `trees` turns its arrays into an
ensemble and puts other leaf values and thresholds into them, `models` does the rest.
Nothing that was not checked here ever reaches the library, which ends the process on a file with a
wrong length in it.
"""
