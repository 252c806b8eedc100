"""moetuned: keep Mixture-of-Experts models that are larger than RAM running well on Linux."""

__version__ = "0.1.0"
