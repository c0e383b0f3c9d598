"""`gptlite eval`."""
