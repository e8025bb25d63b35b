"""Splits a joint graph into forward and backward: min-cut with rematerialisation, or the partitioner of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....dumps.wording import counted
from .. import _torch as t
from ..pipeline import node_count

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.halves`. `work.kwargs` are AOTAutograd's arguments for a partitioner."""
    from functorch.compile import min_cut_rematerialization_partition

    partition = t.config.custom_partitioner_fn or min_cut_rematerialization_partition
    name = getattr(partition, "__name__", type(partition).__name__)
    kwargs = dict(work.kwargs)
    static = kwargs.pop("static_lifetime_input_indices", None)
    with t.dynamo_timed(name, log_pt2_compile_event=True):
        work.halves = partition(
            work.gm, work.inputs, compiler="inductor", static_lifetime_input_indices=static, **kwargs
        )
    forward, backward = (node_count(half) or 0 for half in work.halves)
    work.notes.append(f"forward {counted(forward, 'node')}, backward {counted(backward, 'node')}")
