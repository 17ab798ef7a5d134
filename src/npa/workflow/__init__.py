"""The language: what a user means. Pure; the only I/O is reading the file."""
