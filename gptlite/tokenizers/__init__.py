"""Text to token ids and back: characters, a BPE trained on the user's text, and tiktoken's named encodings."""
