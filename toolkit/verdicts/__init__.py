"""What is said of a graph that ran: outcome, failure signature, verdict, their words and the next command.

Imports no torch.
"""
