"""Always on: a bounded ring of what a process compiles, and the newest call of each graph, to be written as a run when
something goes wrong.

A ring is a run folder below the state folder, in which the recorder keeps the graphs that Dynamo made (64 MB at most);
it goes with a process that ends well and outlives one that does not. A call is held by references, beside proof of what
has been written since.

entry (arm, save_repro) -> session (the ring of this process) -> calls (what each graph was called with) -> evidence
(whether that is still so) -> saving (a run of it); rings (those of processes that are gone, for the next command).
"""
