"""The decoder-only GPT, its attention, and its form on disk."""
