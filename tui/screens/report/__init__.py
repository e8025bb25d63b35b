"""Report: the repro, the text of an issue and what of the user's is in them."""
