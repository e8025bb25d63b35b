"""The parts of a repro that do not depend on the graph: running, comparing, and `main()` for each kind of failure.

`main()` returns 1 while the bug is there, 0 when it is gone, 2 when it can't tell. Texts only, chosen by `checks`, with @WORDS@
to be replaced; they must run with torch alone, and nothing in them may end the program with 1 for another reason than the bug: an
exception that nobody awaits ends it with 2, by HOOK.

>>> compile(MAIN_ACCURACY.replace("@EXACT@", "[]"), "repro.py", "exec") is not None
True
"""

from __future__ import annotations

HOOK = "sys.excepthook = lambda *error: (traceback.print_exception(*error), sys.exit(2))  # 1 is for the bug alone"

RUN_FORWARD = """
def run(function, inputs):
    torch.manual_seed(0)
    return list(function(*inputs))
"""

RUN_BACKWARD = '''
def run(function, inputs):
    """The outputs, then the gradients of all inputs that want one."""
    torch.manual_seed(0)
    outputs = list(function(*inputs))
    wanted = [x for x in inputs if torch.is_tensor(x) and x.requires_grad]
    sources = [y for y in outputs if torch.is_tensor(y) and y.requires_grad]
    if wanted and sources:
        tangents = [torch.randn(y.shape, dtype=torch.float64).to(y) for y in sources]
        outputs += torch.autograd.grad(sources, wanted, tangents, allow_unused=True)
    return outputs
'''


def on_cuda(running: str) -> str:
    """The same `run`, which waits for the device: what fails or hangs there belongs to this run."""
    whole = running.replace("    return list(function(*inputs))", "    outputs = list(function(*inputs))\n    return outputs")
    return whole.replace("    return outputs", "    torch.cuda.synchronize()\n    return outputs")


IN_FLOAT64 = """
def in_float64(x):
    return x.double() if torch.is_tensor(x) and x.dtype.is_floating_point else x
"""

FLOAT64_MODE = '''
class Float64(TorchDispatchMode):
    """Rewrites every floating dtype argument to float64 while the reference is computed."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        def wide(x):
            return torch.float64 if isinstance(x, torch.dtype) and x.is_floating_point else x

        args, kwargs = tree_map(wide, (args, kwargs or {}))
        return op(*args, **kwargs)


def exactly(inputs):
    with Float64():
        return run(graph, inputs)
'''

WRONG = '''
def wrong(eager, exact, got):
    """Says where `got` is further from the float64 result than eager's own rounding explains."""
    for i, (e, r, g) in enumerate(zip(eager, exact, got, strict=True)):
        if not torch.is_tensor(e):
            continue
        r = r if r.shape == e.shape else e
        if not (e.dtype.is_floating_point or e.dtype.is_complex):
            bad = (e != g) & (e == r.to(e.dtype))
            if bad.any():
                return f"output {i}: {int(bad.sum())} of {e.numel()} elements differ, such as {g[bad][0]} for {e[bad][0]}"
            continue
        eps = torch.finfo(e.dtype).eps
        e, r, g = (x.detach().to(torch.complex128 if x.is_complex() else torch.float64) for x in (e, r, g))
        finite = e.isfinite() & r.isfinite() & g.isfinite()
        if finite.any():
            e, r, g = e[finite], r[finite], g[finite]
            own, bad, size = (x.abs().square().mean().sqrt().item() for x in (e - r, g - r, r))
            far = (g - r).abs() > 16 * (e - r).abs().max() + ELEMENT_EPS * eps * (r.abs() + size)
            if far.any() or bad > 4 * own + TOLERANCE * size:
                return f"output {i}: error to float64 {bad:.3g}, eager's own {own:.3g}, values of size {size:.3g}"
    return ""
'''

MAIN_WRONG = """
def main():
    configure()
    eager, got = run(graph, make_inputs()), run(compiled, make_inputs())
    exact = @EXACT@
    for i, (e, r, g) in enumerate(zip(eager, exact, got, strict=True)):
        eps, wide = torch.finfo(e.dtype).eps, torch.complex128 if e.is_complex() else torch.float64
        e, r, g = (x.detach().to(wide) for x in (e, r if r.shape == e.shape else e, g))
        finite = e.isfinite() & r.isfinite() & g.isfinite()
        if finite.any():
            e, r, g = e[finite], r[finite], g[finite]
            own, bad, size = (x.abs().square().mean().sqrt().item() for x in (e - r, g - r, r))
            far = (g - r).abs() > 16 * (e - r).abs().max() + @ELEMENT_EPS@ * eps * (r.abs() + size)
            if far.any() or bad > 4 * own + @TOLERANCE@ * size:
                print(f"BUG: output {i}: error to float64 {bad:.3g}, eager's own {own:.3g}, values of size {size:.3g}")
                return 1
    print("gone: the compiled result agrees with float64")
    return 0
"""
"""For a graph whose outputs are all floating tensors; any other has `WRONG` and `MAIN_ACCURACY`."""

MAIN_ACCURACY = """
def main():
    configure()
    eager, got = run(graph, make_inputs()), run(compiled, make_inputs())
    found = wrong(eager, @EXACT@, got)
    print(f"BUG: {found}" if found else "gone: the compiled result agrees with float64")
    return 1 if found else 0
"""

MAIN_COMPARE = """
def main():
    configure()
    found = differs(run(graph, make_inputs()), run(compiled, make_inputs()))
    print(f"BUG: {found}" if found else "gone: the compiled result is as eager's in this respect")
    return 1 if found else 0
"""

NAN = """
def differs(eager, got):
    for i, (e, g) in enumerate(zip(eager, got, strict=True)):
        if torch.is_tensor(e):
            bad = ~g.isfinite() & e.isfinite()
            if bad.any():
                return f"output {i}: {int(bad.sum())} of {e.numel()} values are NaN or infinite, eager's are finite"
    return ""
"""

METADATA = """
def form(x):
    return @FORM@ if torch.is_tensor(x) else type(x)


def differs(eager, got):
    forms = [form(x) for x in eager], [form(x) for x in got]
    return "" if forms[0] == forms[1] else f"outputs are {forms[1]}, eager gives {forms[0]}"
"""

EXPECTED_ERROR = '''
def expected(error):
    """The recorded exception: one of that type, or wrapping one, whose text has that part."""
    text = "".join(traceback.format_exception(error, limit=0)) + str(getattr(error, "inner_exception", ""))
    return ERROR in text and PART in text
'''

MAIN_MISSING_ERROR = """
def main():
    try:
        configure()
        run(graph, make_inputs())
    except Exception as error:  # noqa: BLE001
        if not expected(error):
            print(f"cannot tell: eager fails in another way: {type(error).__name__}: {error}")
            return 2
        print(f"eager raises {type(error).__name__}: {error}")
    else:
        print("gone: eager raises nothing")
        return 0
    try:
        run(compiled, make_inputs())
    except Exception as error:  # noqa: BLE001
        same = expected(error)
        print(f"{'gone' if same else 'cannot tell'}: torch.compile raises {type(error).__name__}: {error}")
        return 0 if same else 2
    print(f"BUG: torch.compile raises no {ERROR}")
    return 1
"""

MAIN_CRASH = """
def main():
    configure()
    run(graph, make_inputs())
    try:
        run(compiled, make_inputs())
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        text = "".join(traceback.format_exception(error, limit=0)) + str(getattr(error, "inner_exception", ""))
        same = ERROR in text and PART in text
        print(f"BUG: {ERROR}" if same else "cannot tell: it fails in another way")
        return 1 if same else 2
    print("gone: it compiles and runs")
    return 0
"""

EAGER_FIRST = """
    configure()
    run(graph, make_inputs())"""
"""Goes where a main says @EAGER@, unless eager dies in the same way and there is nothing to compare with."""

MAIN_DEATH = """
def main():@EAGER@
    try:
        end = subprocess.run([sys.executable, __file__, "child"], timeout=LIMIT_S, check=False).returncode
    except subprocess.TimeoutExpired:
        end = "hang"
    print(f"{'BUG: ' if end == EXPECTED else ''}the compiled run ended with {end}")
    return 1 if end == EXPECTED else 2 if end else 0
"""

COMPILED = """
def compiled(*inputs):
@MARKS@    return torch.compile(graph, @OPTIONS@)(*inputs)
"""

COMPILED_INNER = '''
def compiled(*inputs):
    """Enters Inductor behind AOTAutograd, where the graph was recorded: plain torch.compile does not fail on it."""
    from torch._inductor.compile_fx import compile_fx_inner
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        gm = make_fx(graph, tracing_mode="@TRACING@")(*inputs)
        fakes = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
        return compile_fx_inner(gm, fakes@KWARGS@)(list(inputs))
'''

STORED = '''
def load():
    """The byte tensors of the safetensors file beside this program."""
    data = Path(__file__).with_suffix(".safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    spans = {name: item["data_offsets"] for name, item in json.loads(data[8:start]).items()}
    return {n: torch.frombuffer(bytearray(data[start + a : start + b]), dtype=torch.uint8) for n, (a, b) in spans.items()}
'''
