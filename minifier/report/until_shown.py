"""A repro of a flaky failure: the program runs itself in fresh processes until one shows it, and says how many that took.

Each run is a process of its own with the caches of graphs off: what compiled once without it would hide it from the next.
Pure text; must not run anything.

>>> looped(program, Rate(5, 8)).splitlines()[2]                                         # doctest: +SKIP
'Flaky: 5 of 8 runs failed where it was found. This program makes fresh ones until one does, 11 at most.'
"""

from __future__ import annotations

import re

from ..flaky import Rate
from .templates import HOOK

LOOP = """
RUNS = @RUNS@  # fresh processes that are tried
if not sys.argv[1:]:
    codes, without = [], {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    while 1 not in codes and len(codes) < RUNS:
        codes.append(subprocess.run([sys.executable, __file__, "once"], env=os.environ | without).returncode)
    print(f"{'BUG: shown' if 1 in codes else 'not shown'} by run {len(codes)} of {RUNS}")
    sys.exit(1 if 1 in codes else max(codes))
"""


def looped(text: str, rate: Rate | None) -> str:
    """The program with a loop right behind its imports, where `rate` is that of a flaky failure; else the program itself."""
    end = f"    {HOOK}\n"
    if rate is None or not rate.flaky or text.count(end) != 1:
        return text
    before, behind = text.split(end)
    before = _with_import(_with_import(before, "os"), "subprocess")
    before = before.replace("\nSeen on torch ", f"\n{sentence(rate)}\nSeen on torch ", 1)
    gap = "\n" if behind.lstrip("\n").startswith(("def ", "@", "class ")) else ""
    return f"{before}{end}{LOOP.replace('@RUNS@', str(rate.repeats()))}{gap}\n{behind.lstrip(chr(10))}"


def sentence(rate: Rate) -> str:
    """How flaky it is and what the program does about it."""
    most = rate.repeats()
    return f"Flaky: {rate} runs failed where it was found. This program makes fresh ones until one does, {most} at most."


def _with_import(text: str, module: str) -> str:
    """The head of a program with one more import, in alphabetical order."""
    if re.search(rf"^import {module}$", text, re.MULTILINE):
        return text
    lines = text.split("\n")
    plain = [at for at, line in enumerate(lines) if re.fullmatch(r"import \w+", line)]
    at = next((at for at in plain if lines[at] > f"import {module}"), plain[-1] + 1 if plain else 0)
    return "\n".join([*lines[:at], f"import {module}", *lines[at:]])
