"""What a GGUF file says about itself, from its bytes alone: tensors, experts, KV cache; pure."""
