"""Keeps a bounded ring of what a process compiles, and the newest call of each graph, while the process is armed; it is
written as a run when something goes wrong.

A ring is a run folder below the state folder, in which the recorder keeps the graphs that Dynamo made (64 MB at most).
It is removed when the process ends well, and stays when the process dies. The inputs of a call are held by reference,
with evidence of whether they were written to since.

entry (arm, save_repro) -> session (the ring of this process) -> calls (what each graph was called with) -> evidence
(whether that is still so) -> saving (a run of it); rings (those of processes that are gone, for the next command).
"""
