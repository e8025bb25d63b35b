"""Runs saved graphs in processes of their own and says what came of it."""
