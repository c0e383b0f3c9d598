"""Estimates before a run starts: memory, disk, epochs, and warnings about what looks wrong."""
