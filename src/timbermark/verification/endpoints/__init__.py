"""Suspects behind HTTP: asked one question after the other, at a measured pace.

`inquiry` asks the questions, `inquiry_progress` knows what they have shown so far and when to stop,
`courier` is the process that sends questions and keeps the journal, `retrying` repeats requests
that failed, `rate_limit` keeps the pace, `protocols` are what servers speak.
"""
