"""Metrics and where they go: the progress bar, JSON lines, TensorBoard."""
