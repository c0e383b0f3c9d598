"""What a trained model is used for: writing text and judging it."""
