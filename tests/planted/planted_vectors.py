"""Imported, plants wrong code generation of vectors alone: the vectorised C++ for tanh is too large, the scalar
right."""

from torch._inductor.codegen import cpp

cpp.CppVecOverrides.tanh = staticmethod(
    lambda x, _right=cpp.CppVecOverrides.tanh: f"({_right(x)} * decltype({x})(1.03f))"
)
