"""The recorder: saves every graph that torch's compiler stack builds, from inside the recorded program, without
changing it.

Runs in the user's process. So it must not write to stdout, draw random numbers, keep graphs or tensors alive, touch the
user's configuration, backends or passes, or let an error of its own reach the program: such errors are counted and
journalled. Nothing here is imported, and nothing patched, before a recording is asked for.

autoload -> starting -> session (what is being recorded) -> torch_private.importing -> patches (where torch is wrapped)
-> hooks, why_hooks (what each wrapper does) -> flight (the graphs of one compiler call) -> observe (the first run).
"""
