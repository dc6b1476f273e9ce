"""Verification: any suspect, opened and asked the triggers of a mark.

This room opens suspects, asks them, reads their answers and judges; `timbermark.ownership` weighs
the answers.
"""
