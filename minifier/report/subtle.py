"""The parts of a repro for failures that no error relative to a size tells: values that are not finite, signs of zeros, roundings
left out, writes to inputs, memory that an output shares with an input.

Texts only, chosen by `checks`, under the rules of `templates`: torch alone, and 1 for nothing but the bug.

>>> compile(MUTATION.replace("@COMPILED@", "graph"), "repro.py", "exec") is not None
True
"""

from __future__ import annotations

MISSING = """
e, r, g = (x.@WIDE@ for x in (e, r, g))
odd = ~e.isfinite() & ((e == r) | (e.isnan() & r.isnan()))
bad = odd & ~((e == g) | (e.isnan() & g.isnan()))
if bad.any():
    sys.exit(f"BUG: output {i} has {g[bad][0]} where eager and float64 give {e[bad][0]}")
"""

SIGNED_ZERO = """
zero = (e == 0) & (r == 0) & (g == 0) & (e.signbit() == r.signbit())
bad = zero & (e.signbit() != g.signbit())
if bad.any():
    sys.exit(f"BUG: output {i}: {int(bad.sum())} zeros have another sign than eager's")
"""

ROUNDING = """
noise = 100 * torch.finfo(e.dtype).eps
e, r, g = (x.double() for x in (e, r, g))
bad, near, size = (x[x.isfinite()].norm() for x in (g - e, g - r, r))
if bad > 2 * near + noise * size:
    sys.exit(f"BUG: output {i} leaves a rounding out: {near:.3g} off float64 without it, {bad:.3g} off eager")
"""
"""Float64 has no rounding of the graph's own; eager mode has them all."""

MUTATION = """
before, eager, got = make_inputs(), make_inputs(), make_inputs()
graph(*eager)
@COMPILED@(*got)
for i, (b, *after) in enumerate(zip(before, eager, got, strict=True)):
    changed = [torch.is_tensor(b) and not torch.allclose(b, x, rtol=0, atol=0, equal_nan=True) for x in after]
    if changed[0] != changed[1]:
        sys.exit(f"BUG: {'eager mode' if changed[0] else 'the compiled graph'} alone changes input {i} in place")
"""

SHARING = '''
def homes(function):
    """For each output the first input whose memory it shares (None: none of them) and its storage offset there."""
    inputs = make_inputs()
    outputs = function(*inputs)
    owner = {x.untyped_storage().data_ptr(): i for i, x in reversed(list(enumerate(inputs))) if torch.is_tensor(x)}
    found = [(owner.get(y.untyped_storage().data_ptr()), y) for y in outputs if torch.is_tensor(y) and y.numel()]
    return [(home, None if home is None else y.storage_offset()) for home, y in found]
'''

SHARED = """
eager, got = homes(graph), homes(@COMPILED@)
print(f"{'gone' if eager == got else 'BUG'}: outputs lie in inputs (number, offset) {got}, in eager mode {eager}")
sys.exit(int(eager != got))
"""
