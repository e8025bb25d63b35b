"""The search itself, one phase of the algorithm per file; knows nothing of FX."""
