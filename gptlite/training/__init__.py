"""From a dataset and a configuration to a trained run."""
