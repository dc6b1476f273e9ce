"""Suspects behind HTTP: asked one question after the other, at a measured pace.

`inquiry` decides what to ask and when to stop, `courier` is the process that sends questions and
keeps the journal, `retrying` repeats requests that failed, `rate_limit` keeps the pace,
`protocols` what servers speak.
"""
