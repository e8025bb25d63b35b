"""Finds where it breaks: a graph under every rung of the ladder, a run with its graphs ranked, a script under each
backend."""
