"""Imported, plants code that does not compile: the C++ written for tanh names a function that there is none of."""

from torch._inductor.codegen import cpp

for _overrides in (cpp.CppOverrides, cpp.CppVecOverrides):
    _overrides.tanh = staticmethod(lambda x: f"planted_tanh({x})")
