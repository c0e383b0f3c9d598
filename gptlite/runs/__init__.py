"""The folder of a run: its name, lock and checkpoints; reading, finding and comparing runs."""
