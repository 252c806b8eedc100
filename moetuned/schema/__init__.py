"""Frozen data that the layers exchange. Holds types and units only; imports nothing but msgspec and stdlib types."""
