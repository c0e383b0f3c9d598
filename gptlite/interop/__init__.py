"""Models that leave: a folder for Hugging Face, a GGUF file for llama.cpp, the weights of a page that writes."""
