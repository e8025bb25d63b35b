"""Joint passes: on the joint graph before it is split, or on an inference graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _torch as t
from .. import recursing

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Rewrites `work.gm`. Patterns are traced on the device of the inputs."""
    devices = t.get_inputs_devices(work.inputs, work.gm)
    with t.dynamo_timed(
        "_recursive_joint_graph_passes", log_pt2_compile_event=True, dynamo_compile_column_us="joint_graph_pass_time_us"
    ):
        work.gm = recursing.joint(work.gm, skip_invoke_subgraph=work.skip_invoke_subgraph, device=next(iter(devices)))
    if work.at_end is not None:
        work.at_end(work)
