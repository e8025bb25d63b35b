"""Replay: one graph under the rungs, the values of its nodes, bisect."""
