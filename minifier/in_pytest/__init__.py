"""`pytest --graphdbg`: plugin (what pytest calls), failing (one failing test, run again)."""

from __future__ import annotations

INSIDE = "PYTEST_GRAPHDBG"
"""Environment variable that is set where a test is run again."""
FOLDER = "graphdbg-pytest"
