"""Which settings, compiler arguments and values of them a dump may set: by a list, everything else is refused.

Paths, commands, flags, libraries, callbacks and names that nobody has looked at are shown, and put in force only where
the user trusts the dump. Values are plain ones (`walk.plain`). Imports no torch, and does not ask what torch would
accept.

>>> refusal("inductor", "cpp.cxx", [None, "./x.sh"]), refusal("inductor", "max_autotune", True)
('it names commands', '')
>>> refusal("inductor", "cpp.threads", 10**9)
'it takes a whole number of -1 to 1024'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from .permitted_kinds import Each, Kind, Number, Switch
from .permitted_names import REFUSED, ROWS

_COUNT, _OPTIONAL = Number(0, 2**31), "?"
ARGUMENTS: dict[str, Kind] = {
    **dict.fromkeys(("is_backward", "is_inference", "cpp_wrapper", "fx_wrapper", "layout_opt", "cudagraphs",
        "aot_mode"),
                    Switch()),
    **dict.fromkeys(("graph_id", "num_fwd_outputs", "num_example_inputs", "num_orig_model_outputs",
                     "num_mutated_inp_runtime_indices", "boxed_forward_device_index"), _COUNT),
    **dict.fromkeys(("static_input_idxs", "static_input_indices", "static_lifetime_input_indices", "bw_donated_idxs",
                     "user_visible_output_idxs"), Each(_COUNT, most=2**20)),
}  # fmt: skip
"""Arguments of the compilers that a graph was given to, and notes of its outputs beside them; others reach none."""

_OF_THE_PROCESS = (
    "compile_threads",
    "worker_",
    "trace.",
    "fx_graph_cache",
    "fx_graph_remote_cache",
    "enable_autograd_cache",
    "enable_remote_autograd_cache",
    "force_disable_caches",
    "bundled_autograd_cache",
    "caching_precompile",
    "repro_",
    "debug_dir_root",
    "verbose",
    "suppress_errors",
    "fresh_cache",
)
_SHOWN, _MOST_SHOWN = 60, 8


def of_the_process(name: str) -> bool:
    """Whether a setting affects how a process works or what it writes, not what a graph becomes: a replay ignores
    it."""
    return name.startswith(_OF_THE_PROCESS)


@cache
def known() -> dict[str, tuple[Kind, bool]]:
    """`room.name` -> what it takes, and whether None is taken too."""
    return {
        f"{under}.{name.removesuffix(_OPTIONAL)}": (row.kind, name.endswith(_OPTIONAL))
        for row in ROWS
        for under in row.under.split()
        for name in row.names.split()
    }


def refused_by_name(room: str, name: str) -> str:
    """The kind of thing a setting on no list names ("commands"), by its name; empty where the name does not say."""
    return next((what for what, pattern in REFUSED.items() if re.search(pattern, f"{room}.{name}")), "")


def refusal(room: str, name: str, value: Any) -> str:
    """Why a dump may not set a setting to a value, as half a sentence; empty where it may."""
    kind, optional = known().get(f"{room}.{name}", (None, False))
    if kind is None:
        what = refused_by_name(room, name)
        return f"it names {what}" if what else "this graphdbg does not know it"
    return "" if (value is None and optional) or kind.takes(value) else f"it takes {kind.text()}"


def argument_refusal(name: str, value: Any) -> str:
    """The same for an argument of a compiler."""
    kind = ARGUMENTS.get(name)
    return "" if kind is None or value is None or kind.takes(value) else f"it takes {kind.text()}"


def without(refused: Mapping[str, tuple[Any, str]]) -> str:
    """The sentence on settings that were not put in force: name -> (value, why not). Empty where there are none."""
    if not refused:
        return ""
    few = dict(list(refused.items())[:_MOST_SHOWN])
    more = f" and {len(refused) - len(few)} more" if len(refused) > len(few) else ""
    reasons = ", ".join(f"{name} = {_short(value)} ({why})" for name, (value, why) in few.items())
    return f"{JUDGED_WITHOUT} {', '.join(few)}{more}{_BY_ITSELF}: {reasons}. --trust puts them in force"


JUDGED_WITHOUT, _BY_ITSELF = "judged without", ", which a dump does not set by itself"
"""The beginning of the sentence, and what follows the names in it."""


def names_of(sentence: str) -> str:
    """The beginning of that sentence, which only names the settings: for a verdict."""
    return sentence.partition(_BY_ITSELF)[0]


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
