"""The text of a repro for a graph that eager cannot run where it was minified: it is compiled, and nothing is run.

`torch.compile` is given inputs with values and stopped behind the compile; the inner compiler is given fake tensors, which need
no device and no memory. Must not import torch.
"""

from __future__ import annotations

COMPILED = '''
class Compiled(BaseException):
    """The compile came to its end. What it made is not run."""


def compiled(*inputs):
    """Only compiles: where this was found, eager cannot run the graph."""
    from torch._inductor.compile_fx import compile_fx

    def backend(gm, examples):
        compile_fx(gm, examples)
        raise Compiled

@MARKS@    torch.compile(graph, backend=backend, @OPTIONS@)(*inputs)
'''

EXAMPLES = """
def examples():
    return make_inputs()
"""

EXAMPLES_OF_DEVICE = '''
def examples():
    """Fake tensors where the device is not there, and Inductor's joint patterns, which it traces on the device, on the CPU."""
    if torch.cuda.is_available():
        return make_inputs()
    from torch._inductor.fx_passes import joint_graph
    from torch._subclasses.fake_tensor import FakeTensorMode

    usual = joint_graph.lazy_init
    joint_graph.lazy_init = lambda *_: usual()
    with FakeTensorMode(allow_non_fake_inputs=True):
        return make_inputs()
'''

COMPILED_INNER = '''
class Compiled(BaseException):
    """The compile came to its end. What it made is not run."""


def compiled(*inputs):
    """Only compiles, on fake tensors: where this was found, eager cannot run the graph. Enters Inductor behind AOTAutograd."""
    from torch._inductor.compile_fx import compile_fx_inner
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        gm = make_fx(graph, tracing_mode="@TRACING@")(*inputs)
        fakes = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
        compile_fx_inner(gm, fakes@KWARGS@)
    raise Compiled


def examples():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        return make_inputs()
'''

MAIN = """
def main():
    try:
        configure()
        inputs = examples()
    except Exception as error:  # noqa: BLE001
        print(f"cannot tell: {type(error).__name__}: {error}")
        return 2
    try:
        compiled(*inputs)
    except Compiled:
        print("gone: it compiles; it was not run")
        return 0
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        same = expected(error)
        print(f"BUG: {ERROR}" if same else "cannot tell: it fails in another way")
        return 1 if same else 2
    print("cannot tell: nothing was compiled")
    return 2
"""
