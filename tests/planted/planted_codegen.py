"""Imported, plants wrong code generation: the C++ written for tanh has half of the argument (0/0 at zero)."""

from torch._inductor.codegen import cpp

for _overrides in (cpp.CppOverrides, cpp.CppVecOverrides):
    _overrides.tanh = staticmethod(lambda x, _right=_overrides.tanh: _right(f"(({x} * {x}) / ({x} + {x}))"))
