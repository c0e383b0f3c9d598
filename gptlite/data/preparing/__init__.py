"""From documents to a prepared data set on disk."""
