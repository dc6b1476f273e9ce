"""What a thief can do to a marked model."""
