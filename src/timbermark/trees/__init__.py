"""The neutral ensemble of trees: what it is, how it predicts, how it is kept in a file."""
