"""The only way between records and torch: loads graphs and inputs from records, and saves graphs as records. torch is
imported late.

Loading is safe: nothing in a dump is imported, evaluated or run, and a target that is not on the allow-list is refused
by name.

>>> from graphdbg.dumps import live
>>> gm, inputs = live.module(saved.record, saved.tensors), saved.inputs()
>>> live.save_graph(gm, inputs, "case")
PosixPath('case')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import late

if TYPE_CHECKING:
    from .torchside.case import save_graph as save_graph
    from .torchside.decode import fake_module as fake_module
    from .torchside.decode import module as module
    from .torchside.encode import encode as encode
    from .torchside.make_inputs import inputs as inputs
    from .torchside.observed import observe as observe

_HOME = {
    "save_graph": "case",
    "fake_module": "decode",
    "module": "decode",
    "encode": "encode",
    "inputs": "make_inputs",
    "observe": "observed",
}

__getattr__ = late(f"{__package__}.torchside", _HOME)
