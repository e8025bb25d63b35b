"""The saved form of graphs, and everything that reads it without torch."""
