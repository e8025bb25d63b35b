"""The parts of a repro for a failure that is an amount: too slow, too much memory, or memory that ran out.

Texts only, like `templates`; `checks` chooses among them.

>>> "{seconds:.1f} s" in MAIN_SLOW
True
"""

from __future__ import annotations

OUT_OF_MEMORY_BYTES = 2 << 30
"""What the compiled run of a small case may map, where what it was reduced from ran out of memory."""

_EAGER = '''
    try:
        configure()
        run(graph, make_inputs())
        torch.compile(lambda x: x + 1)(torch.ones(2))  # what the first compile of a process loads is not what is measured
'''

MAIN_SLOW = f'''
def main():
    """Times compile and first run; the compile cache should be empty."""{_EAGER}        began = time.perf_counter()
        run(compiled, make_inputs())
    except Exception as error:  # noqa: BLE001
        print(f"cannot tell: {{type(error).__name__}}: {{error}}")
        return 2
    seconds = time.perf_counter() - began
    print(f"{{'BUG: ' if seconds > OVER_S else 'gone: '}}compile and first run took {{seconds:.1f}} s")
    return 1 if seconds > OVER_S else 0
'''

MAIN_MEMORY = f'''
def resident(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def main():
    cuda = any(torch.is_tensor(x) and x.is_cuda for x in make_inputs()){_EAGER}        if cuda:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        else:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # forgets the highest resident memory so far
            before = resident("VmRSS:")
        run(compiled, make_inputs())
        needed = (torch.cuda.max_memory_allocated() if cuda else resident("VmHWM:")) - before
    except Exception as error:  # noqa: BLE001
        print(f"cannot tell: {{type(error).__name__}}: {{error}}")
        return 2
    print(f"{{'BUG: ' if needed > OVER_BYTES else 'gone: '}}compile and first run needed {{needed / 2**20:.1f}} MiB")
    return 1 if needed > OVER_BYTES else 0
'''

MAIN_OUT_OF_MEMORY = '''
def child():
    """The compiled run, where no more than LIMIT_BYTES can be mapped; exit code 3: that was not enough."""
    configure()
    inputs = make_inputs()
    with open("/proc/self/statm") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        run(compiled, inputs)
    except Exception as error:  # noqa: BLE001
        words = ("MemoryError", "can't allocate memory", "std::bad_alloc", "out of memory")
        return 3 if any(word.lower() in f"{type(error).__name__} {error}".lower() for word in words) else 2
    return 0


def main():@EAGER@
    end = subprocess.run([sys.executable, __file__, "child"], timeout=LIMIT_S, check=False).returncode
    print(f"{'BUG: ' if end == 3 else ''}the compiled run ended with {end}" + (" (out of memory)" if end == 3 else ""))
    return 1 if end == 3 else 2 if end else 0
'''
