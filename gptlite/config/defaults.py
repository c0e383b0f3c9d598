"""What null stands for, where the program reads saved configs without the schema, which takes a while to load."""

DEFAULT_MAX_STEPS = 1000
DEFAULT_BPE_VOCAB_SIZE = 4096
