"""Deployed models around boosted ones: pipelines, searches, calibration, label maps.

What is deployed is marked in the rows that *it* takes; what is edited are the boosted models
inside. `timbermark.libraries.wrappers.kinds` says of each kind of wrapper how rows get in and how
answers come out; `WrapperAdapter` makes a foreign model of any nesting of them. Nothing is fitted
again: a copy of the whole gets other boosted models in their places.
"""

from timbermark.libraries.wrappers.adapter import WrapperAdapter, asked_model, is_wrapper

__all__ = ["WrapperAdapter", "asked_model", "is_wrapper"]
