"""The GPT: equations, cache, GPT-2 file format, sizes. Imports only config and seeds, so it can be read on its own."""
