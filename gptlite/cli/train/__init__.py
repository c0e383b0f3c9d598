"""`gptlite train`."""
