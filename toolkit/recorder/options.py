"""What a recording was asked for, and its way through the environment into the recorded process.

Knows nothing of torch. `GRAPHDBG` names the run; `GRAPHDBG_OPTIONS` holds the rest as one JSON object.

>>> Options(run="myrun", inputs="first").environment()["GRAPHDBG"]
'myrun'
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ...dumps.errors import UsageError
from ...dumps.schema import STAGES

INPUT_POLICIES = ("none", "meta", "index", "first", "all")
LATER_POLICIES = ("last",)
NOT_RECORDED_YET = ("compiled_autograd",)


class Options(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One recording. `stages` empty means all; `wrapped` says that `graphdbg dump` waits outside and tells the summary.

    `seen` is a file to which every process that imports torch appends one line, so that an empty run can be explained.
    """

    run: str
    inputs: str = "index"
    stages: list[str] = []
    keep_cache: bool = False
    wrapped: bool = False
    seen: str = ""

    def environment(self) -> dict[str, str]:
        """The variables that make a child process record itself so."""
        options = msgspec.to_builtins(self)
        run = options.pop("run")
        return {"GRAPHDBG": run, "GRAPHDBG_OPTIONS": msgspec.json.encode(options).decode()}


def checked(options: Options) -> Options:
    """The options with an absolute run path; raises UsageError for an unknown stage or inputs policy."""
    check_inputs(options.inputs)
    options.stages = check_stages(options.stages)
    options.run = str(Path(options.run).absolute())
    return options


def check_inputs(policy: str) -> str:
    """The policy, when it is one that can be recorded."""
    if policy in LATER_POLICIES:
        raise UsageError(f"--inputs {policy} is not built yet", "it needs the last execution, known only at the end", "use first")
    if policy not in INPUT_POLICIES:
        raise UsageError(f"unknown inputs policy {policy!r}", f"there are {', '.join(INPUT_POLICIES)}")
    return policy


def check_stages(stages: Iterable[str]) -> list[str]:
    """The stages in stack order without repetition; `post_grad` stands for its three."""
    wanted: set[str] = set()
    for stage in stages:
        found = [name for name in STAGES if name == stage or (stage == "post_grad" and name.startswith("post_grad_"))]
        if not found:
            raise UsageError(f"unknown stage {stage!r}", f"there are {', '.join(STAGES)}, and post_grad for its three")
        if stage in NOT_RECORDED_YET:
            raise UsageError(f"stage {stage} is not built yet", "", "leave it out")
        wanted.update(found)
    return [stage for stage in STAGES if stage in wanted]


def from_environment(run: str, environment: Mapping[str, str] = os.environ) -> Options:
    """The options that the environment asks for; raises UsageError when GRAPHDBG_OPTIONS cannot be read."""
    try:
        fields = msgspec.json.decode(environment.get("GRAPHDBG_OPTIONS") or "{}", type=dict)
        return checked(msgspec.convert({**fields, "run": run}, Options))
    except msgspec.MsgspecError as error:
        raise UsageError("cannot read GRAPHDBG_OPTIONS", str(error), 'it is a JSON object like {"inputs": "first"}') from error
