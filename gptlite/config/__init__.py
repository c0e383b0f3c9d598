"""What a run is made of: the schema of a config file, and the loader that turns YAML and overrides into it."""
