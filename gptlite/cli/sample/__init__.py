"""`gptlite sample`."""
