"""Names of graphs and processes: how they are built, checked, shown and looked up.

A graph's local id is `<frame>_<recompile>[_a<attempt>]/<stage>[.N]`; `x<K>_0` stands for no compile id, `ca<K>_0` for
compiled autograd, `case` for a graph saved by hand. Every id and process name that reaches the file system passes
through here, so a name can never leave its folder.

>>> compile_name("0/0_1"), compile_name("!2")
('0_0_a1', 'ca2_0')
>>> check_id("0_0/forward.1")
'0_0/forward.1'
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from .errors import BadValueError, NameRefusedError, NoSuchGraphError
from .schema import STAGES
from .wording import listed

_COMPILE = re.compile(r"case|(?:x\d+_0|ca\d+(?:_\d+){1,2}|\d+_\d+)(?:_a\d+)?", re.ASCII)
_TORCH_COMPILE = re.compile(
    r"(?:!(?P<ca>\d+)(?:/|$))?(?:(?P<frame>\d+)/(?P<recompile>\d+)(?:_(?P<attempt>\d+))?)?", re.ASCII
)
_STAGE = re.compile(rf"(?:{'|'.join(STAGES)})(?:\.[1-9]\d*)?", re.ASCII)
_PLAIN = re.compile(r"\w[\w.+-]*", re.ASCII)
_MAX_NAME = 200
_MOST_NAMED = 12


def compile_name(compile_id: str) -> str:
    """torch's compile id ("0/0", "0/0_1", "!2", "!2/0/1") as a folder name; a text that is a folder name already is
    returned as it is."""
    if _COMPILE.fullmatch(compile_id):
        return compile_id
    match = _TORCH_COMPILE.fullmatch(compile_id)
    if not match or not (match["ca"] or match["frame"]):
        raise BadValueError(f"{compile_id!r} is not a compile id", 'ids look like "0/0", "0/0_1" or "!0"')
    frame = f"{match['frame']}_{match['recompile']}" if match["frame"] else "0"
    attempt = f"_a{match['attempt']}" if match["attempt"] and match["attempt"] != "0" else ""
    return f"ca{match['ca']}_{frame}{attempt}" if match["ca"] else f"{frame}{attempt}"


def check_id(local: str) -> str:
    """Returns a local graph id that is well formed, hence safe as a path; raises RefusedError for any other text."""
    if not is_id(local):
        why = "ids look like 0_0/forward, 0_0_a1/joint or x0_0/inference.1"
        raise NameRefusedError(f"{local!r} is not a graph id", why)
    return local


def is_id(local: str) -> bool:
    """Whether the text is a well-formed local graph id."""
    head, slash, stage = local.partition("/")
    return bool(slash and len(local) <= _MAX_NAME and _COMPILE.fullmatch(head) and _STAGE.fullmatch(stage))


def stage_of(local: str) -> str:
    """The stage in a local id: "0_0/forward.1" gives "forward"."""
    return check_id(local).partition("/")[2].partition(".")[0]


def number_of(local: str) -> int:
    """The number among the graphs of one stage and compile: "0_0/forward.2" gives 2, "0_0/forward" 0."""
    return int(check_id(local).rpartition(".")[2]) if "." in local else 0


def check_file_name(name: str, what: str = "file name") -> str:
    """Returns a name of one path component made of letters, digits and `_`, after the first also `. + -`; raises
    RefusedError for anything else."""
    if len(name) > _MAX_NAME or not _PLAIN.fullmatch(name):
        why = "only letters, digits and _ . + - are allowed, no sign first"
        raise NameRefusedError(f"{name!r} is not a {what}", why)
    return name


def process_name(pid: int, rank: int | None = None, restart: int = 0) -> str:
    """The folder name of one recorded process: pid123, rank0_pid123, rank0_restart1_pid123."""
    parts = [f"rank{rank}"] if rank is not None else []
    if restart:
        parts.append(f"restart{restart}")
    return "_".join([*parts, f"pid{pid}"])


class Address(msgspec.Struct, frozen=True):
    """Where a graph lies: its process folder, the rank of that process, its local id."""

    process: str
    rank: int | None
    local: str


def shown(addresses: Sequence[Address]) -> list[str]:
    """The ids to show: local ids when only one process recorded graphs, else prefixed by rank, or by process folder
    where ranks repeat."""
    processes = {(address.process, address.rank) for address in addresses}
    if len(processes) <= 1:
        return [address.local for address in addresses]
    ranks = Counter(rank for _, rank in processes)
    return [f"{a.process if a.rank is None or ranks[a.rank] > 1 else a.rank}:{a.local}" for a in addresses]


def find(text: str, addresses: Sequence[Address], where: str = "this run") -> int:
    """Returns the index of the one address that `text` names. An exact id wins over prefixes; a prefix must be
    unambiguous.

    `text` is a local id or its beginning, optionally after `<rank or process folder>:`. Raises UsageError with the
    candidates.
    """
    names = shown(addresses)
    process, colon, local = text.rpartition(":")
    inside = [
        i
        for i, a in enumerate(addresses)
        if not colon or a.process == process or (a.rank is not None and process == str(a.rank))
    ]
    exact = [i for i in inside if addresses[i].local == local]
    positions = exact or [i for i in inside if local and addresses[i].local.startswith(local)]
    if len(positions) == 1:
        return positions[0]
    if positions:
        why = f"it could be {listed([names[i] for i in positions], _MOST_NAMED)}"
        raise NoSuchGraphError(f"{text!r} is ambiguous in {where}", why, "give more of the id")
    if not addresses:
        raise NoSuchGraphError(f"{where} holds no graph {text!r}", "it holds no graphs at all")
    why = f"it holds {listed([names[i] for i in inside] or names, _MOST_NAMED)}"
    if colon and not inside:
        why = f"no process there is called {process!r}; {why}"
    attempts = re.compile(re.escape(local).replace("/", r"_a\d+/"), re.ASCII)
    later = [i for i in inside if "/" in local and attempts.match(addresses[i].local)]
    fix = f"did you mean {names[later[-1]]}" if later else "list them with graphdbg ls"
    raise NoSuchGraphError(f"{where} holds no graph {text!r}", why, fix)
