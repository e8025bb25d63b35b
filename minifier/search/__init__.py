"""The search, one step per file, none of which knows FX; the order of steps is the list in `tiers`."""
