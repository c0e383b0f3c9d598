"""From text to training batches: sources, the validation split, token ids on disk, the batch of each step."""
