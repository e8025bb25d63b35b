"""The text of a repro for a graph that eager cannot run where it was minified: it is compiled, and nothing is run.

`torch.compile` is given inputs with values and stopped behind the compile; the inner compiler is given fake tensors, which need
no device and no memory. Must not import torch.
"""

from __future__ import annotations

BACKEND = """
def backend(gm, examples):
    compile_fx(gm, examples)
    print("gone: it compiles; it is not run")
    sys.exit(0)
"""

INPUTS_OF_DEVICE = """
if torch.cuda.is_available():
    inputs = make_inputs()
else:  # fake tensors, and Inductor's joint patterns, which it traces on the device, on the CPU
    usual = joint_graph.lazy_init
    joint_graph.lazy_init = lambda *_: usual()
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = make_inputs()
"""

FAKE_INPUTS = """
with FakeTensorMode(allow_non_fake_inputs=True):
    inputs = make_inputs()
"""

COMPILED_INNER = """
def compiled(*inputs):
    gm = make_fx(@FUNCTION@, tracing_mode="@TRACING@")(*inputs)
    compile_fx_inner(gm, [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]@KWARGS@)
    print("gone: it compiles; it is not run")
    sys.exit(0)
"""

ONLY_COMPILES = """
@INPUTS@
try:
    @COMPILED@(*inputs)
except Exception as error:  # noqa: BLE001
    traceback.print_exc()
    text = @TEXT@
    sys.exit(f"BUG: {ERROR}" if ERROR in text and PART in text else 2)
sys.exit(2)  # nothing was compiled
"""

IMPORTS = {
    "compile_fx_inner(": "from torch._inductor.compile_fx import compile_fx_inner",
    "compile_fx(": "from torch._inductor.compile_fx import compile_fx",
    "make_fx(": "from torch.fx.experimental.proxy_tensor import make_fx",
    "joint_graph.": "from torch._inductor.fx_passes import joint_graph",
    "FakeTensorMode(": "from torch._subclasses.fake_tensor import FakeTensorMode",
    "TorchDispatchMode)": "from torch.utils._python_dispatch import TorchDispatchMode",
    "tree_map_only(": "from torch.utils._pytree import tree_map_only",
}
"""What a program imports because of a word in it."""
