"""Placeholder docstring, to be written by the room."""
