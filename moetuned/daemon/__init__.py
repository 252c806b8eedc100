"""Composition root: the loop, its workers, supervision of backends."""
