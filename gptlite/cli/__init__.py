"""The command line: one file or package per command. Each parses, calls one function, and prints."""
