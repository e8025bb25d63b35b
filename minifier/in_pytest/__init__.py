"""`pytest --graphdbg`: plugin (what pytest calls), failing (one failing test, run again)."""
