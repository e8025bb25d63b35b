"""Diff: one graph beside another, aligned by what nodes compute."""
