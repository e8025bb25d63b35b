"""How a judged graph is described: outcome, failure signature, verdict, their words and the next command.

Imports no torch.
"""
