"""A compiler with a bug, for every Python with this folder on PYTHONPATH: the code for tanh reads address 8."""

import importlib.abc
import importlib.util
import sys


class Broken(importlib.abc.MetaPathFinder):
    """Changes Inductor's C++ code for tanh when that is imported."""

    def find_spec(self, name, path, target=None):
        """The module as it is, and the change once it has run."""
        if name != "torch._inductor.codegen.cpp":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            for overrides in (module.CppOverrides, module.CppVecOverrides):
                overrides.tanh = staticmethod(lambda x: f"((void)*(volatile int*)8, {x})")

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Broken())
