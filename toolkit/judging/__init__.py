"""Judges one execution of a live graph against eager: references, comparison, nondeterminism, crashes."""
