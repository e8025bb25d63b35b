"""Cuts live graphs: a part of the nodes with the values that enter and leave it, as a case of its own."""
