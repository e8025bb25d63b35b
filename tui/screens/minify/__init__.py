"""Minify: the form that begins a search, and one that runs or ended, followed and steered."""
