"""Marking: candidates, selection, labels, embedding, and the cost shown beforehand."""
