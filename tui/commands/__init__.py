"""`graphdbg tui`."""
