"""Verification: any suspect, opened and asked the triggers of a mark.

`timbermark.ownership` judges what was answered and knows timbermark's own files, functions and
estimators. This room adds the models and files of other libraries.
"""
