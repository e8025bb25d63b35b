"""Graph: the nodes of one graph, and beside them detail, source, code and neighbourhood."""
