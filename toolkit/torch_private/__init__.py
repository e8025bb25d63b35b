"""Private names of torch: `torch_private.compile_fx_inner` is torch's own, looked up on access.

`names` has the table, `replacing` temporary replacements. Importing this imports nothing of torch, so code that may be
imported without torch can use it. A missing name raises LacksName: a rung is then skipped, and a command reports it.

For example:

    from . import torch_private as t
    with t.swapped("GraphLowering.run_node", ours):
        t.compile_fx_inner(gm, fakes)
"""

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any

from .names import NAMES
from .replacing import Replaced as Replaced
from .replacing import all_replaced as all_replaced
from .replacing import replaced

if TYPE_CHECKING:  # what a type checker follows through isinstance, and types of the compile path
    from ...dumps.torchside.torch_private import FakeTensor as FakeTensor
    from ...dumps.torchside.torch_private import FakeTensorMode as FakeTensorMode
    from ...dumps.torchside.torch_private import HigherOrderOperator as HigherOrderOperator
    from ...dumps.torchside.torch_private import OpOverload as OpOverload
    from ...dumps.torchside.torch_private import OpOverloadPacket as OpOverloadPacket
    from .names import CompiledFxGraph as CompiledFxGraph
    from .names import GraphLowering as GraphLowering
    from .names import OutputCode as OutputCode

look_up, optional, loaded, home = NAMES.look_up, NAMES.optional, NAMES.loaded, NAMES.home
__getattr__ = NAMES.taken_by(globals())


def swapped(name: str, value: Any) -> contextlib.AbstractContextManager[None]:
    """Replaces a name of the table in torch for the block."""
    return replaced(*home(name), value)


@functools.cache  # a later hook may have another signature
def takes(name: str, parameter: str) -> bool:
    """Whether this torch's function or class, by its name in the table, has a parameter of that name."""
    return parameter in inspect.signature(look_up(name)).parameters
