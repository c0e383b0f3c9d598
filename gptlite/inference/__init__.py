"""Using a trained model: load it, sample text, score text, look inside."""
