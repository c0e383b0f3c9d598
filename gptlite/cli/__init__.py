"""The doors: one file per command. Each parses, calls one function, and prints."""
