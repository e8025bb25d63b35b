"""What a checked run of kernels found, as plain data. Imports no torch.

For example:

    Finding(kind="load", kernel="triton_poi_fused_index_2", launch=4, program=(17, 0, 0), line=14, lanes=29)
"""

from __future__ import annotations

import msgspec

from ..verdicts.verdict import OK, Kind, Verdict, Where, cannot_tell, fails

KINDS = {
    "load": "out-of-bounds load",
    "store": "out-of-bounds store",
    "atomic": "out-of-bounds atomic",
    "uninitialised": "read of memory that nothing wrote",
    "write-write": "two programs write to the same address",
    "read-write": "one program reads what another one writes",
    "lanes": "two lanes write to the same address",
    "overflow": "integer overflow of an index",
    "nan": "first NaN",
    "inf": "first infinity",
    "assert": "failed assertion",
    "values": "buffer that differs from eager",
}
"""Kind of a fault -> its name for people."""
_KINDS: dict[str, Kind] = {"nan": "nan", "inf": "nan", "values": "wrong_numbers"}
"""Kind of a fault -> kind of a verdict; none for faults of an access, which are not about numbers."""


class UserLine(msgspec.Struct, frozen=True):
    """A line of the user's program: "model.py:41" and what stands there, where that was recorded."""

    place: str
    code: str = ""


class KernelFault(msgspec.Struct, omit_defaults=True):
    """All faults of one kind at one line of one kernel for one argument. `launch`, `program` and the lanes: of the
    first occurrence.

    `lanes`: how many of the program's, from `first_lane` to `last_lane`; `programs`: how many programs; `count`: how
    many occurrences. `element`: index into the argument's storage, which has `storage` elements. `node`: whose value
    the buffer holds; `nodes`: all of the kernel. `eager`: whether eager's value has the fault, too, if known. `note`:
    no fault by itself.
    """

    kind: str
    kernel: str
    launch: int = 0
    program: tuple[int, int, int] = (0, 0, 0)
    line: int = 0
    text: str = ""
    lanes: int = 0
    first_lane: int = 0
    last_lane: int = 0
    programs: int = 1
    count: int = 1
    argument: str = ""
    buffer: str = ""
    node: str = ""
    dtype: str = ""
    shape: list[int] = []
    element: int = 0
    storage: int = 0
    nodes: list[str] = []
    lines: list[UserLine] = []
    detail: str = ""
    eager: bool | None = None
    note: bool = False

    @property
    def what(self) -> str:
        """The fault in words."""
        return KINDS[self.kind]


class CheckedKernels(msgspec.Struct, omit_defaults=True):
    """The result of a checked run. `kernels`: how many were checked, of `names`; `findings`: faults; `notes`: findings
    that are no fault by themselves; `unchecked`: sentences on what was not checked; `verdict`: on the results; `wrong`:
    the results are wrong though no kernel was found to be; `cannot`: why the run did not finish."""

    findings: list[KernelFault] = []
    notes: list[KernelFault] = []
    kernels: int = 0
    names: list[str] = []
    launches: int = 0
    calls: int = 0
    seconds_plain: float | None = None
    seconds_checked: float = 0.0
    verdict: str = ""
    wrong: bool = False
    cannot: str = ""
    unchecked: list[str] = []
    peak_bytes: int = 0

    @property
    def conclusion(self) -> Verdict:
        """The verdict: the first fault of a kernel, at its node; wrong results; or why the run did not finish."""
        if self.cannot:
            return cannot_tell(self.cannot)
        if self.findings:
            fault = self.findings[0]
            node, line = fault.node or next(iter(fault.nodes), ""), next((at.place for at in fault.lines), "")
            where = Where(node, line=line, name=fault.kernel)
            own = any(name.startswith("triton_kernel_wrapper") for name in fault.nodes)  # eager runs it, too
            rung = "eager" if own else "triton_interpret"
            return fails(_KINDS.get(fault.kind), rung, f"{fault.what} in {fault.kernel}", where)
        return fails("wrong_numbers", "triton_interpret", self.verdict) if self.wrong else OK

    @property
    def ok(self) -> bool:
        """Whether it ran and no fault was found."""
        return not self.conclusion.exit_code

    @property
    def ratio(self) -> float | None:
        """The time of the checked run divided by that of the plain one."""
        return self.seconds_checked / self.seconds_plain if self.seconds_plain else None
