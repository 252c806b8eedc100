"""Text of the kernel, of backends and of people to schema types; one file a format; pure."""
