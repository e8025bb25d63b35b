"""The peak of a wrapper's buffers: what is alive at once, through reuse and del, with the kernel that writes first."""

from __future__ import annotations

from graphdbg.dumps.sidecar import Buffer, peak

WRAPPER = """
def helper():
    buf9 = empty_strided_cpu((1000000, ), (1, ), torch.float32)

def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (8, 4), (4, 1), 'input')
    buf0 = empty_strided_cpu((8, 4), (4, 1), torch.float32)
    cpp_fused_sin_0(arg0_1, buf0)
    del arg0_1
    buf1 = empty_strided_cpu((16, 4), (4, 1), torch.bfloat16)
    # Topologically Sorted Source Nodes: [mm], Original ATen: [aten.mm]
    extern_kernels.mm(buf0, buf0, out=buf1)
    buf2 = reinterpret_tensor(buf0, (32, ), (1, ), 0); del buf0  # reuse
    cpp_fused_cos_1(buf2)
    del buf1
    buf3 = empty_strided_cpu((s0, 4), (4, 1), torch.float32)
    buf4 = empty_strided_cpu((2, ), (1, ), torch.int64)
    return (buf2, buf3, buf4, )
"""


def test_what_is_alive_at_once() -> None:
    result = peak(WRAPPER)
    assert result.bytes == 8 * 4 * 4 + 16 * 4 * 2
    assert sorted(result.live, key=lambda item: item.name) == [
        Buffer("buf0", 128, "cpp_fused_sin_0"),
        Buffer("buf1", 128, "extern_kernels.mm"),
    ]


def test_what_is_no_wrapper_holds_nothing() -> None:
    assert peak("int main() { return 0; }").largest is None
