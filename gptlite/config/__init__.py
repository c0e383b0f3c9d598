"""The configuration of a run: the schema of a config file, and the loader that turns YAML and overrides into it."""
