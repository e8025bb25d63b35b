"""The page of the capture matrix: what a cell says, the table, the reasons.

>>> write(Path("docs/capture-matrix.md"), lines, programs)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.models.capture_programs import Program

HEAD = """# What is recorded, and replays

Programs of every kind that `torch.compile` takes apart, each recorded with `--inputs first`, then loaded in a fresh
process.
Made by `python -m tests.matrix.capture_matrix --write docs/capture-matrix.md` (a quarter of an hour on two cores;
`--list`
shows the programs, `--only REGEX` runs some). The programs are one line each in `tests/models/capture_programs.py`.

A ✓ says of every graph of that program at that stage:

* it was recorded, and no error of the recorder was counted;
* a fresh process loads it, with stored values for every tensor that it is given; sizes, strides, offsets, storages and
  who shares
  them are those of the run, of a graph that AOTAutograd has not seen yet also leaves, `requires_grad` and bases, and so
  they are
  where all that is known is what `--inputs index` keeps;
* run eagerly there, its results are the same bits (with the same dtypes, shapes and strides) as those of the *live*
  graph: the
  very graph that the compiler was given, run node by node in the recording process, on the real inputs of its first
  execution,
  under seed 0. Results are its outputs, the gradients of its leaves where it still requires them, and the inputs that
  it wrote;
* replayed on the rung `inductor`, entered at its stage, the verdict is good and the fidelity line says "same": Inductor
  made the
  same post-grad graphs and the same code as in the recorded run.

A graph that does not run by itself (before or after the passes, a joint graph) is given what the graphs of its compile
were
given that do run. The column `api` holds graphs of `joint_graph`, `inference_graph` and `save_graph`, with no recorded
run behind
them: what Inductor makes of the saved case is compared with what it makes of the live graph. Graphs of several ranks
are replayed
by as many processes at once.
"""

_PATH = re.compile(r"(?:/[\w.+\-@<>:]+){2,}:? ?")


def write(path: Path, lines: Sequence[str], programs: Sequence[Program]) -> None:
    """Writes the page anew. Paths of the runs, which are gone, are left out of the reasons."""
    messages = [_PATH.sub("", line) for line in lines]
    about = [f"* `{program.name}`: {program.about}" for program in programs]
    path.write_text("\n".join([HEAD, *messages, "", "## The programs", "", *about, ""]))
