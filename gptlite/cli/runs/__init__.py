"""`gptlite runs`."""
