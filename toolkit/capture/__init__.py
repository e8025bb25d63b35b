"""Capture: graphs of plain functions and modules, with no `torch.compile` in between.

`inference_graph` and `joint_graph` trace through AOTAutograd's rules: functional ATen operators, mutations of inputs as
outputs, aliases and tensor subclasses taken apart, every input and output described. Importing this package imports no
torch.

>>> from graphdbg.toolkit.capture.aot import joint_graph
>>> captured = joint_graph(model, (x,))
>>> [(item.name, item.role, item.source) for item in captured.inputs_described]
[('primals_1', 'parameter', "self.get_parameter('weight')"), ('primals_2', 'parameter',
"self.get_parameter('bias')"), ('primals_3', 'user', 'args[0]'), ('tangents_1', 'tangent',
'__output_tangent(output[0])')]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dumps import late

if TYPE_CHECKING:
    from .aot import inference_graph, joint_graph

__all__ = ["inference_graph", "joint_graph"]

__getattr__ = late(__name__, dict.fromkeys(__all__, "aot"))
