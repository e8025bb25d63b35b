"""The compile path: graph in, callable out, as a visible list of stages over Inductor's own passes, lowering and code
generation.

`compile_fx` is what `torch._inductor.compile_fx.compile_fx` is, orchestrated here, so that each stage can be watched,
timed, skipped, replaced and stopped after. Torch's passes, lowering, scheduler and code generation are called, never
rewritten. Importing this package imports no torch; the first compile does.

>>> pipeline = Pipeline()
>>> compiled = compile_fx(torch.fx.symbolic_trace(model), [x], pipeline=pipeline)
>>> [(report.part, report.stage, report.nodes_after) for report in pipeline.reports][:2]
[('dynamo', 'capture', 5), ('dynamo', 'pre_grad', 5)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dumps import late
from .pipeline import Observer, Pipeline, StageReport
from .stage import NAMES, STAGES, Stage

if TYPE_CHECKING:
    from .entering import compile_fx
    from .inner import compile_inner

__getattr__ = late(__name__, {"compile_fx": "entering", "compile_inner": "inner"})

__all__ = ["NAMES", "STAGES", "Observer", "Pipeline", "Stage", "StageReport", "compile_fx", "compile_inner"]
