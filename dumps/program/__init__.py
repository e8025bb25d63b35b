"""Prints a record as Python, in two styles, and builds whole programs from that. Imports no torch.

`module`: a torch.nn.Module class (graph.py). `function`: one function of torch calls (repro.py). Only checked names and
repr() of a record's contents reach a program, because programs are executed.

>>> from graphdbg.dumps.program.module import program
>>> "class Graph(torch.nn.Module):" in program(record)
True
"""
