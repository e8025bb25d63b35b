"""A training run without torch, in a process of its own: records a graph at each line of its stdin, and ends as it is
told.

python writing.py RUN         stdin: "graph" compiles one, "done" says that it ran, "die" kills it, end of file ends it
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, NodeRecord, RunRecord
from graphdbg.dumps.writer import RunWriter

process = RunWriter.create(
    Path(sys.argv[1]), RunRecord(format=FORMAT, command=["train.py"], started=time.time())
).process()
count = 0
for line in sys.stdin:
    word = line.strip()
    if word == "graph":
        nodes = [
            NodeRecord(name="x", op="placeholder", target="x"),
            NodeRecord(name="output", op="output", target="output"),
        ]
        process.save_graph(
            GraphRecord(format=FORMAT, id=f"{count}_0/forward", stage="forward", graph=GraphBody(nodes=nodes))
        )
        process.journal.event("compiling", graph=f"{count}_0/forward")
        count += 1
    elif word == "done":
        process.journal.event("ran", graph=f"{count - 1}_0/forward")
    elif word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
process.close()
