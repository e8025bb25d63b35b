"""The printer: a record as Python, in two styles, and the whole programs that are made of them. Imports no torch.

`module`: a torch.nn.Module class (graph.py). `function`: one function of torch calls (repro.py).
Nothing of a record reaches a program but checked names and repr(): programs are executed.

>>> from graphdbg.dumps.program.module import program
>>> "class Graph(torch.nn.Module):" in program(record)
True
"""
