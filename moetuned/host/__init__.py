"""The one door to the operating system."""
