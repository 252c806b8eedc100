"""The llama.cpp of the pip wheel xllamacpp, started with the flags of llama-server."""
