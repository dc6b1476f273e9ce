"""Editing: an ensemble, rows and wanted margins of a few of them give the edited ensemble.

Only leaf values change, never a split. The model is its own teacher: the rows have no labels, and
what they are to keep is the answer that the model gave before.
"""

from timbermark.editing.leaves import Edit, edit_leaves
from timbermark.editing.routing import Router, Routes

__all__ = ["Edit", "Router", "Routes", "edit_leaves"]
