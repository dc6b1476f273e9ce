"""Compiled loops: arrays in, arrays out; no classes, no validation, no allocation of results."""
