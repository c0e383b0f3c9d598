"""Files, locks and sealed records on disk."""
