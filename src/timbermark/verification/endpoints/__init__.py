"""Suspects behind HTTP: asked one question after the other, at a measured pace.

`asking` is the inquiry, `courier` the process that sends questions and keeps the journal,
`protocols` what servers speak.
"""
