"""The options of a recording, and their way through the environment into the recorded process.

Knows nothing of torch. `GRAPHDBG` names the run; `GRAPHDBG_OPTIONS` holds the rest as one JSON object.

>>> Options(run="myrun", inputs="first").environment()["GRAPHDBG"]
'myrun'
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ...dumps.errors import BadValueError, UnknownWordError
from ...dumps.schema import STAGES

INPUT_POLICIES = ("none", "meta", "index", "first", "last", "all")
OCCASIONS = ("nan", "error")
_UNITS = "KMGT"
LEAST_DISK = 1 << 20


class Options(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One recording. `stages` empty means all; `wrapped` says that `graphdbg dump` waits outside and prints the
    summary.

    `when` are occasions at which the inputs of a step are kept whole; `held_limit` bounds the bytes of inputs that a
    process holds for that and for the policy `last`.

    Limits, 0 or empty for none: `max_disk` bytes of the whole run, `keep` compiles of each function, `only` graphs that
    match, those that run `after_step` steps of the optimizer.

    `compiled_autograd` records the backwards of code that is not compiled too.

    `seen` is a file to which every process that imports torch appends one line, so that an empty run can be explained.
    """

    run: str
    inputs: str = "index"
    stages: list[str] = []
    keep_cache: bool = False
    wrapped: bool = False
    seen: str = ""
    max_disk: int = 0
    keep: int = 0
    only: str = ""
    after_step: int = 0
    when: list[str] = []
    held_limit: int = 4 << 30
    compiled_autograd: bool = False

    def environment(self) -> dict[str, str]:
        """The environment variables that make a child process record itself with these options."""
        options = msgspec.to_builtins(self)
        run = options.pop("run")
        return {"GRAPHDBG": run, "GRAPHDBG_OPTIONS": msgspec.json.encode(options).decode()}


def check_backwards(options: Options) -> None:
    """Raises UsageError where compiled autograd is asked for but its stage is excluded."""
    if options.compiled_autograd and options.stages and "compiled_autograd" not in options.stages:
        stages = ",".join([*options.stages, "compiled_autograd"])
        why = "its graphs are of the stage compiled_autograd, which --stages leaves out"
        raise BadValueError("--compiled-autograd would record nothing", why, f"give --stages {stages}")


def checked(options: Options) -> Options:
    """The options with an absolute run path; raises UsageError for an unknown stage or inputs policy."""
    if options.inputs not in INPUT_POLICIES:
        why = f"the policies are {', '.join(INPUT_POLICIES)}"
        raise UnknownWordError(f"unknown inputs policy {options.inputs!r}", why)
    check_limits(options)
    for name in sorted(set(options.when) - set(OCCASIONS)):
        raise UnknownWordError(f"unknown word {name!r} for --when", f"it takes {' and '.join(OCCASIONS)}")
    options.when = [name for name in OCCASIONS if name in options.when]
    options.stages = check_stages(options.stages)
    check_backwards(options)
    options.run = str(Path(options.run).absolute())
    return options


def check_limits(options: Options) -> None:
    """Raises UsageError for limits that make no sense."""
    try:
        re.compile(options.only)
    except re.error as error:
        raise BadValueError(f"--only {options.only!r} is not a regular expression", str(error)) from error
    if options.keep < 0 or options.after_step < 0:
        raise BadValueError("--keep and --after-step take a number of 0 or more")
    if options.max_disk and options.max_disk < LEAST_DISK:
        raise BadValueError(
            f"--max-disk {options.max_disk} is too little", "a journal and one graph need more", "give at least 1M"
        )


def parts(text: str) -> list[str]:
    """The parts of a comma-separated text such as "nan,error"."""
    return [word.strip() for word in text.split(",") if word.strip()]


def size_of(text: str) -> int:
    """Bytes of "512M", "4G", "1.5GiB" or a plain number; raises UsageError."""
    number, unit = text.strip().upper().removesuffix("B").removesuffix("I"), 0
    if number and number[-1] in _UNITS:
        number, unit = number[:-1], 10 * (1 + _UNITS.index(number[-1]))
    try:
        size = int(float(number) * (1 << unit))
    except (ValueError, OverflowError) as error:
        raise BadValueError(f"{text!r} is not a size", "", "give it like 512M or 4G") from error
    if size < 0:
        raise BadValueError(f"{text!r} is not a size", "it is negative", "give it like 512M or 4G")
    return size


def check_stages(stages: Iterable[str]) -> list[str]:
    """The stages in stack order without repetition; `post_grad` stands for its three."""
    wanted: set[str] = set()
    for stage in stages:
        three = [name for name in STAGES if stage == "post_grad" and name.startswith("post_grad_")]
        matching = three or [name for name in STAGES if name == stage]
        if not matching:
            why = f"the stages are {', '.join(STAGES)}, and post_grad for its three"
            raise UnknownWordError(f"unknown stage {stage!r}", why)
        wanted.update(matching)
    return [stage for stage in STAGES if stage in wanted]


def from_environment(run: str, environment: Mapping[str, str] = os.environ) -> Options:
    """The options that the environment asks for; raises UsageError when GRAPHDBG_OPTIONS cannot be read."""
    try:
        fields = msgspec.json.decode(environment.get("GRAPHDBG_OPTIONS") or "{}", type=dict)
        return checked(msgspec.convert({**fields, "run": run}, Options))
    except msgspec.MsgspecError as error:
        raise BadValueError(
            "cannot read GRAPHDBG_OPTIONS", str(error), 'it is a JSON object like {"inputs": "first"}'
        ) from error
