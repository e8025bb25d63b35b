"""Exit codes and examples of every command: the end of its help text, and the source of the pages of docs/reference. No
torch.

>>> EXAMPLES["ls"][0]
('graphdbg ls myrun', 'the compiles of a run, and what failed')
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import click

_WIDTH = 78
"""Columns of the end of a help text, which is indented by two columns to fit into 80."""

_EXAMPLES = """
graphdbg dump -o myrun train.py  # record a training script into the folder myrun
graphdbg dump -o first --inputs first -- python train.py --steps 3  # also keep the tensors it begins with
graphdbg import small/case/graph.py --trust -o edited  # a graph.py that you edited, as a case
graphdbg import trace -o theirs  # a run of the files of TORCH_TRACE=trace
graphdbg demo -o demo  # wrong numbers: find, shrink and report them
graphdbg demo --plant compile_error  # the same with a kernel that does not compile
graphdbg doctor  # a row for each thing that works or is missing
graphdbg doctor --clean --dry-run  # what the cache folder holds
graphdbg ls myrun  # the compiles of a run, and what failed
graphdbg ls myrun --why  # graph breaks, failed guards and dynamic sizes
graphdbg ls  # the runs in this folder
graphdbg show myrun/0_0/forward  # the nodes of a graph
graphdbg show myrun/0_0/forward --node relu --hops 2  # one node and what lies around it
graphdbg show myrun/0_0/forward --find relu --save part  # some of its nodes as a case
graphdbg draw myrun/0_0/forward -o graph.svg  # the whole graph
graphdbg draw myrun/0_0/forward --around relu --hops 2 -o relu.png  # one node and its neighbours
graphdbg diff myrun first  # two runs, graph by graph
graphdbg diff myrun/0_0/joint myrun/0_0/forward  # two stages of one compile
graphdbg tui myrun  # a run
graphdbg tui small  # a minification, also while it runs
graphdbg triage myrun  # which graph of a run fails, and in which layer
graphdbg triage myrun/0_0/forward --rungs eager,inductor  # one graph under these two rungs
graphdbg triage -- python train.py  # each compiled call of a program, beside eager
graphdbg replay myrun/0_0/forward  # run a graph again under Inductor
graphdbg replay myrun/0_0/forward --rung inductor_nofuse  # the same with no fusion
graphdbg check myrun/0_0/forward  # one graph
graphdbg check myrun  # every graph of a run
graphdbg minify -o small myrun/0_0/forward  # shrink one graph into the folder small
graphdbg minify --resume -o small  # go on after Ctrl-C or a kill
graphdbg steer small  # what a minification is doing
graphdbg steer small pause  # let it wait; resume goes on
graphdbg report -o report myrun/0_0/forward  # a graph as it was recorded
graphdbg report small  # the result of minify
graphdbg verify small  # does small/repro.py still fail?
graphdbg verify small --python python3  # does it fail with the torch of that Python?
graphdbg same small report  # two folders of minify or report
graphdbg same small myrun/0_0/forward  # a repro and a graph of a run
graphdbg pack myrun --preview  # what would be sent; writes nothing
graphdbg pack myrun -o page.html  # one page for a browser
graphdbg bisect myrun/0_0/forward  # the node, pass, lowering or setting at fault
graphdbg bisect small --by pass  # search the parts of the compiler only
graphdbg compile myrun/0_0/forward  # every stage, then the kernels
graphdbg compile myrun/0_0/joint --diff joint  # what the joint passes rewrote
graphdbg compile myrun/0_0/forward --skip remove_noop_ops  # without a pass; does the code differ?
graphdbg compile myrun/0_0/forward --emit source -o stages  # graphs and code as files
graphdbg compile myrun/0_0/forward --emit ptx --target cuda:90  # Triton kernels for a GPU that is not here
graphdbg kernel myrun/0_0/forward  # the Triton kernels of a graph, with their launches
graphdbg kernel myrun/0_0/forward --check  # each access of each kernel, on the CPU
"""
EXAMPLES = {
    name: tuple((line, about) for line, _, about in rows)
    for name, rows in groupby(
        (line.partition("  # ") for line in _EXAMPLES.strip().splitlines()), key=lambda row: row[0].split()[1]
    )
}
"""Command -> example command lines, each with a few words on its effect. In this order, each after `dump`, they make
one story: a test runs them."""

_JUDGED = {
    "0": "everything was judged and nothing fails: ok or rounding",
    "1": "something fails",
    "4": "nothing fails, but something is nondeterministic or cannot be judged",
}
_REPRO = {
    "0": "the repro shows the failure every time (one that comes and goes: as often as the original)",
    "1": "the graph does not fail, or no repro shows it",
    "4": "it cannot be judged",
}
EXITS: dict[str, dict[str, str]] = {
    "dump": {"N": "what CMD exits with; 0 to 255", "128+N": "signal N ended CMD"},
    "import": {"0": "the case or run is written"},
    "demo": {"0": "the planted bug was found and reduced", "1": "a step failed"},
    "doctor": {
        "0": "everything that graphdbg needs is here",
        "3": "something that it needs is missing, or could not be removed",
    },
    "ls": {"0": "listed, whatever the run's graphs came to"},
    "show": {"0": "shown"},
    "draw": {"0": "drawn"},
    "diff": {"0": "no difference", "1": "they differ, or one of them could not be read"},
    "tui": {"0": "left"},
    "triage": _JUDGED,
    "replay": _JUDGED,
    "check": {"0": "no mismatch", "1": "there are mismatches", "4": "something could not be checked"},
    "minify": _REPRO,
    "steer": {"0": "done, or waiting for its turn", "1": "refused"},
    "report": _REPRO,
    "verify": {
        "0": "it fails in 3 of 3 runs (one that comes and goes: as often as the original)",
        "1": "it does not fail",
        "4": "it cannot be judged",
    },
    "same": {"0": "the same failure", "1": "another failure", "4": "it cannot be judged"},
    "pack": {
        "0": "the file holds nothing that it should not",
        "1": "something private is left: the file is written, and what is left is named",
    },
    "bisect": {"0": "the graph does not fail", "1": "it fails; what was found is printed", "4": "it cannot be judged"},
    "compile": {"0": "it compiled as far as asked", "1": "a stage failed"},
    "kernel": {
        "0": "results agree, or nothing was found",
        "1": "a result differs, a kernel died, or --check found a fault",
        "4": "it could not be checked",
    },
}
"""Command -> exit code -> its meaning. `ALWAYS` applies to every command as well."""
ALWAYS = {
    "2": "bad usage or unreadable input",
    "3": "something that it needs is missing here",
    "70": "a defect of graphdbg",
    "130": "interrupted",
}
"""Exit code -> its meaning for every command."""
REPRO = {
    "0": "the failure does not show",
    "1": "the failure shows",
    "2": "it cannot tell: another failure, a missing package or GPU",
}
"""Exit code of a repro.py -> its meaning."""


def _own(name: str) -> dict[str, str]:
    missing = [table for table, rows in (("EXITS", EXITS), ("EXAMPLES", EXAMPLES)) if name not in rows]
    if missing:
        what = f"{' and '.join(missing)} of dumps/manual.py: no row for the command {name}, of which help tells"
        raise KeyError(what)
    return EXITS[name]


def exits(name: str) -> dict[str, str]:
    """Exit code -> its meaning for this command, the common ones last; KeyError where the command has no row here."""
    own = _own(name)
    return own | {code: meaning for code, meaning in ALWAYS.items() if code not in own}


def epilog(name: str, words: str) -> str:
    """The end of a command's help: `words` (the paragraph that explains its terms) unless empty, exit codes, examples.
    KeyError for a command without rows here."""
    own = _own(name)
    usual = [code for code in ALWAYS if code not in own]
    codes = [*own.items(), (", ".join(usual), "; ".join(ALWAYS[code] for code in usual))]
    return "\n\n".join(filter(None, [words, _section("Exit codes", codes), _section("Examples", EXAMPLES[name])]))


def _section(heading: str, rows: Sequence[tuple[str, str]]) -> str:
    """A paragraph that click does not rewrap: each row in two columns, or on two lines where the examples are too
    long."""
    formatter = click.HelpFormatter(width=_WIDTH)
    formatter.indent()
    if heading == "Examples" and sum(max(map(len, column)) for column in zip(*rows, strict=True)) + 4 > _WIDTH:
        formatter.write("".join(f"  {line}\n      {about}\n" for line, about in rows))
    else:
        formatter.write_dl(rows, col_max=_WIDTH)
    return f"\b\n{heading}:\n{formatter.getvalue().rstrip()}"
