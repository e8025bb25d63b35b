"""The parts of a repro that do not depend on the graph: what runs it, compares it and says what was found, by kind of failure.

A program ends with 1 while the bug is there, with 0 when it is gone, and with 2 when it can't tell: an exception that nobody
awaits ends it with 2, by HOOK. Texts only, chosen by `checks`, with @WORDS@ to be replaced; they must run with torch alone.
They are short because a repro is read before it is run: what cannot occur in a graph is left out by `checks`.

>>> compile(CRASH.replace("@EAGER@", "pass").replace("@COMPILED@", "pass"), "repro.py", "exec") is not None
True
"""

from __future__ import annotations

HOOK = "sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the bug alone"

RUN_BACKWARD = '''
def run(function, inputs@MORE@):  # the outputs, then the gradients of the inputs that want one
    outputs = @OUTPUTS@
    sources = [y for y in outputs if @TENSOR@y.requires_grad]
    tangents = [torch.randn(y.shape, dtype=torch.float64).to(y) for y in sources]
    return outputs + list(torch.autograd.grad(sources, @WANTED@, tangents, @UNUSED@=True)@ELSE@)
'''

FLOAT64_MODE = '''
class Float64(TorchDispatchMode):
    """Rewrites every floating dtype argument to float64 while the reference is computed."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        given = (args, kwargs or {})
        args, kwargs = tree_map_only(torch.dtype, lambda x: torch.float64 if x.is_floating_point else x, given)
        return op(*args, **kwargs)
'''

FLOATS = """
e, r, g = (x.@WIDE@ for x in (e, r, g))
finite = (e + r + g).isfinite()
off, own, size = (x[finite].norm() for x in (g - r, e - r, r))
"""
"""How far the compiled and eager results are from float64, where all three are finite."""

BEYOND = """
most, rms = max((e - r)[finite].abs().tolist(), default=0), size / max(int(finite.sum()), 1) ** 0.5
far = ((g - r).abs() > 16 * most + @ELEMENT_EPS@ * torch.finfo(eager[i].dtype).eps * (r.abs() + rms))[finite]
"""
"""For an error that is small beside all values and large for some of them."""

OFF = """
print(f"compiled:\\n{g}\\nin float64:\\n{r}")
sys.exit(f"BUG: output {i} is {off:.3g} off its float64 value of norm {size:.3g}, eager mode {own:.3g}")
"""

INTEGERS = """
bad = @BAD@
if bad.any():
    sys.exit(f"BUG: output {i}: {int(bad.sum())} elements differ, such as {g[bad][0]}, eager gives {e[bad][0]}")
"""

NAN = """
bad = e.isfinite() & ~g.isfinite()
if bad.any():
    sys.exit(f"BUG: output {i}: {int(bad.sum())} values are NaN or infinite, eager's are finite")
"""

METADATA = """
eager, got = ([@FORM@ for x in y] for y in (eager, got))
print(f"{'gone' if eager == got else 'BUG'}: outputs are {got}, in eager mode {eager}")
sys.exit(int(eager != got))
"""

TEXT_OF = """"".join(traceback.format_exception(error, limit=0)) + str(getattr(error, "inner_exception", ""))"""

CRASH = f"""
@EAGER@
try:
    @COMPILED@
except Exception as error:  # noqa: BLE001
    traceback.print_exc()
    text = {TEXT_OF}
    sys.exit(f"BUG: {{ERROR}}" if ERROR in text and PART in text else 2)
print("gone: it compiles and runs")
"""

RAISED = f'''
def raised(function):
    try:
        @CALL@
    except Exception as error:  # noqa: BLE001
        return {TEXT_OF}
    return ""
'''

MISSING_ERROR = """
eager, got = raised(graph), raised(@COMPILED@)
print(f"eager mode raises: {eager or 'nothing'}\\ntorch.compile raises: {got or 'nothing'}")
other = any(text and (ERROR not in text or PART not in text) for text in (eager, got))
sys.exit(0 if not eager else 2 if other else int(not got))
"""

CHILD = """
if sys.argv[1:] == ["child"]:
    @COMPILED@
    sys.exit(0)
"""

SIGNAL = """
@EAGER@
end = subprocess.run([sys.executable, __file__, "child"], timeout=@LIMIT_S@, check=False).returncode
print(f"{'BUG: ' if end == @EXPECTED@ else ''}the compiled run ended with {end}")
sys.exit(1 if end == @EXPECTED@ else 2 if end else 0)
"""

HANG = """
@EAGER@
try:
    subprocess.run([sys.executable, __file__, "child"], timeout=@LIMIT_S@, check=True)
except subprocess.TimeoutExpired:
    sys.exit("BUG: the compiled run does not end within @LIMIT_S@ s")
print("gone: it ends")
"""

COMPILED_INNER = '''
def compiled(*inputs):
    gm = make_fx(@FUNCTION@, tracing_mode="@TRACING@")(*inputs)
    fakes = [n.meta["val"] for n in gm.graph.find_nodes(op="placeholder")]
    return compile_fx_inner(gm, fakes@KWARGS@)(list(inputs))
'''
