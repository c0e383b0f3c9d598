"""`gptlite train --sweep`."""
