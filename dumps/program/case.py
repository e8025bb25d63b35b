"""What a repro is written from: a saved graph's records, its failure, and how it came to be. Pure data.

>>> Case(record, None, None, failure, made="Reduced by graphdbg 0.1.0 from 318 nodes to 3.")     # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ..schema import GraphRecord, InputsRecord
from .facts import Facts, facts_of
from .inputs import Read

GRAD_STAGES = frozenset({"dynamo", "pre_grad"})
"""Graphs that autograd still has to see; those of all other stages are run without it."""


REDUCED = "Reduced by"
"""How `made` begins of a case that was minified."""


class Failure(Protocol):
    """The part of a failure signature that a repro needs."""

    @property
    def kind(self) -> str: ...
    @property
    def stage(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def raw(self) -> str: ...
    @property
    def size(self) -> float | None: ...


class Rate(Protocol):
    """How often a failure shows; as text "5 of 8"."""

    @property
    def flaky(self) -> bool: ...
    def repeats(self) -> int: ...


@dataclass(frozen=True)
class Registered:
    """Custom operators: a block of the program, imports that it needs, sentences for the head, and whether it holds stand-ins."""

    block: str
    imports: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    stands_in: bool = False


@dataclass(frozen=True)
class Case:
    """What a repro is written from.

    `happens`: the failure in words. `imports`: the user's modules that it was found with; `needs_imports`: the graph has ops of
    theirs. `only_compiled`: eager cannot run it here, so that the program compiles and runs nothing.
    """

    record: GraphRecord
    inputs: InputsRecord | None
    read: Read | None
    failure: Failure
    rung: str = "inductor"
    happens: str = "torch.compile fails"
    made: str = ""
    imports: tuple[str, ...] = ()
    needs_imports: bool = False
    trust: bool = False
    """Whether the user's own Triton kernels may be run."""
    only_compiled: bool = False
    recorded_at: str = ""
    """The stage of the graph that it was reduced from, where that is not the record's own."""
    ops: Registered | None = None
    """Registrations of custom operators that stand in the program itself."""
    rate: Rate | None = None
    """How often it failed where that is known."""
    torch: str = ""
    """The version that it is known to fail on, where the record does not say which one it was recorded with."""

    @cached_property
    def facts(self) -> Facts:
        """What its graph is like."""
        return facts_of(self.record)

    @property
    def grad(self) -> bool:
        """Whether the repro runs a backward too."""
        return self.record.stage in GRAD_STAGES

    @property
    def wants_backward(self) -> bool:
        """Whether it computes gradients."""
        return self.grad and bool(self.facts.wanted)

    @property
    def telling(self) -> str:
        """The failure in a few words of its own. The numbers of a reduced case are others: the program prints them."""
        failure = self.failure
        before = ", before it was reduced" if self.made.startswith(REDUCED) else ""
        if failure.kind == "accuracy" and failure.size is not None:
            return f"relative error {failure.size:.2g}" + (f" ({failure.detail})" if failure.detail else "") + before
        if failure.kind == "nan" and failure.raw:
            return failure.raw + before
        return failure.raw or failure.message or failure.detail
