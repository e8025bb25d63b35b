"""Generated source is told apart by kernel without running it."""

from __future__ import annotations

from graphdbg.dumps.kernels import split

CPP = """
cpp_fused_relu_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
void kernel() {}
''')
triton_poi_fused_sin_0 = async_compile.triton('triton_poi_fused_sin_0', '''
def triton_poi_fused_sin_0(): pass
''', device_str='cuda')
other = something.triton('x', 'y')
def call(args): pass
"""


def test_kernels_get_files_of_their_own():
    files = split(CPP)
    assert set(files) == {"output_code.py", "cpp_fused_relu_0.cpp", "triton_poi_fused_sin_0.py"}
    assert files["cpp_fused_relu_0.cpp"] == "void kernel() {}\n"
    assert files["triton_poi_fused_sin_0.py"].startswith("def triton_poi_fused_sin_0")
    assert files["output_code.py"] == CPP


def test_source_that_is_no_python_is_kept_whole():
    assert split("this is ( not python") == {"output_code.py": "this is ( not python"}
