"""The parts of a repro for a failure that is an amount: too slow, too much memory, or memory that ran out.

Texts only, like `templates`; `checks` chooses among them.

>>> "{seconds:.1f} s" in SLOW
True
"""

from __future__ import annotations

OUT_OF_MEMORY_BYTES = 2 << 30
"""What the compiled run of a small case may map, where what it was reduced from ran out of memory."""

_WARM = "torch.compile(lambda x: x + 1)(torch.ones(2))  # what the first compile of a process loads is not what is measured"

SLOW = f"""
@EAGER@
{_WARM}
began = time.perf_counter()  # compile and first run; the compile cache should be empty
@COMPILED@
seconds = time.perf_counter() - began
print(f"{{'BUG' if seconds > @OVER@ else 'gone'}}: compile and first run took {{seconds:.1f}} s")
sys.exit(int(seconds > @OVER@))
"""

RESIDENT = '''
def resident(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
'''

MEMORY = f"""
@EAGER@
{_WARM}
before = @BEFORE@
@RESET@
@COMPILED@
needed = @PEAK@ - before
print(f"{{'BUG' if needed > @OVER@ else 'gone'}}: compile and first run needed {{needed / 2**20:.1f}} MiB")
sys.exit(int(needed > @OVER@))
"""

ON_CPU = (
    'resident("VmRSS:")',
    'with open("/proc/self/clear_refs", "w") as file:\n    file.write("5")  # forgets the highest resident memory so far',
    'resident("VmHWM:")',
)
ON_CUDA = (
    "torch.cuda.memory_allocated()",
    "torch.cuda.reset_peak_memory_stats()",
    "torch.cuda.max_memory_allocated()",
)
"""What was used before, what forgets the highest use, and what tells it."""

OUT_OF_MEMORY_CHILD = """
if sys.argv[1:] == ["child"]:  # the compiled run, where no more than @LIMIT_BYTES@ bytes can be mapped
    with open("/proc/self/statm") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + @LIMIT_BYTES@
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    @COMPILED@
    sys.exit(0)
"""

OUT_OF_MEMORY = """
@EAGER@
end = subprocess.run([sys.executable, __file__, "child"], timeout=@LIMIT_S@, capture_output=True, text=True, check=False)
words = ("memoryerror", "can't allocate memory", "std::bad_alloc", "out of memory")
short = end.returncode != 0 and any(word in end.stderr.lower() for word in words)
print(f"{end.stderr}\\nthe compiled run ended with {end.returncode}")
sys.exit("BUG: it runs out of memory" if short else 2 if end.returncode else 0)
"""
