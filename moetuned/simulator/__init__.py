"""A stand-in for a llama-server: a load generator for paging, not a language model."""
