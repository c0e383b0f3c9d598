"""The version of gptlite."""

__version__ = "0.1.0"
