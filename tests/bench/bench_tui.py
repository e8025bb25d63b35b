"""How long the graph screen takes to open, scroll, search, fold and filter, beside Textual's own DataTable with the
same cells.

    python -m tests.bench.bench_tui [--nodes 1000 10000 100000] [--repeat 5] [--keys 150] [--keep FOLDER] [--no-peer]

Every number comes from a fresh process in a pseudo-terminal of its own, whose output is read as a terminal does: from
the key (put into the queue where the terminal's would come) to the end of the `App._display` in which what it does can
be seen. "open" is from the first line of the program (the interpreter is up, nothing of ours is imported) to rows.
Bars, for 100,000 nodes: the best "open" below 0.5 s, the 99th percentile of keys below 50 ms at 160x50 and at 250x80,
less than 250 MB of memory, no torch imported. Exits with 1 when one is missed. "settled" is when all rows of a
filter are shown; keys are answered meanwhile. The CPU time is told, too: it is what the time would be on a machine that
has nothing else to do (plus textual's 60 paints a second).
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback
from pathlib import Path
from threading import Thread
from typing import Any

BEGAN = time.perf_counter()
HERE = Path(__file__)
NODES = (1000, 10_000, 100_000)
SIZES = ((160, 50), (250, 80))
OPEN_BAR_S, KEY_BAR_S, MEMORY_BAR = 0.5, 0.050, 250 * 2**20
WORD = "erf"


def write_run(folder: Path, nodes: int) -> None:
    """A run with one made-up graph."""
    from graphdbg.dumps.schema import FORMAT, RunRecord
    from graphdbg.dumps.writer import RunWriter
    from tests.dumps.layered import layered

    process = RunWriter.create(folder, RunRecord(format=FORMAT, command=["train.py"], started=time.time())).process()
    process.save_graph(layered(nodes))
    process.close()


# -- in the child: one program in a terminal


def memory_bytes() -> int:
    """The resident memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Waits for what can be seen: `until(state)` ends with the first paint at whose end `state()` holds."""

    def __init__(self, app: Any) -> None:
        import asyncio

        self.app = app
        self.painted = asyncio.Event()
        self.at = 0.0
        self.busy_s = 0.0
        """CPU time of the last key, all threads."""
        display = app._display

        def watched(*args: Any) -> None:
            display(*args)
            self.at = time.perf_counter()
            self.painted.set()

        app._display = watched

    async def until(self, holds: Any, limit_s: float = 20) -> float:
        """When it was painted."""
        import asyncio

        while True:
            await asyncio.wait_for(self.painted.wait(), limit_s)
            self.painted.clear()
            if holds():
                self.busy_s = time.process_time() - self.busy_s
                return self.at

    async def press(self, key: str, holds: Any) -> float:
        """Seconds from a key to the paint that shows it."""
        from textual.events import Key

        self.painted.clear()
        began, self.busy_s = time.perf_counter(), time.process_time()
        event = Key({"/": "slash", ":": "colon"}.get(key, key), key if len(key) == 1 else None)
        event.set_sender(self.app)
        self.app.post_message(event)
        return await self.until(holds) - began


def watch_said(error: Exception) -> str:
    """What went wrong, and in which line of the story."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
    return f"{error!r} at lines {lines}"


def in_terminal(run: str, size: tuple[int, int], keys: int, peer: bool, out: Path) -> None:
    """Runs the workbench (or the peer) and writes what was measured; ends with the parent."""
    parent = os.getppid()

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    Thread(target=watch_parent, daemon=True).start()
    app, story = (peer_story if peer else own_story)(run, keys)
    results: dict[str, Any] = {}

    async def pilot(_: Any) -> None:
        try:
            await story(results)
            results["memory"] = memory_bytes()
            results["torch"] = "torch" in sys.modules
        except Exception as error:  # noqa: BLE001 - told by the parent
            results["error"] = f"{watch_said(error)}"
        finally:
            app.exit()

    app.run(auto_pilot=pilot)
    out.write_text(json.dumps(results))


def own_story(run: str, keys: int) -> tuple[Any, Any]:
    """The graph screen: what `graphdbg tui RUN/ID` starts, and what is done with it."""
    gc.disable()  # as the command does
    from graphdbg.tui.app import Workbench
    from graphdbg.tui.room import first_room

    app = Workbench(first_room(f"{run}/0_0/forward"))

    async def story(entry: dict[str, Any]) -> None:
        watch = Watch(app)
        room: Any = app.first

        def rows() -> bool:
            return bool(room.is_mounted and room.query("NodeTable") and room.table.texts is not None)

        entry["open"] = await watch.until(rows) - BEGAN
        entry["cpu"] = time.process_time()
        if not keys:
            return
        import asyncio

        while not (room.table.lanes and room.rows.groups):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        table, times, busy = room.table, {}, {}

        async def pressed(name: str, key: str, state: Any) -> None:
            before = state()
            times.setdefault(name, []).append(await watch.press(key, lambda: state() != before))
            busy.setdefault(name, []).append(watch.busy_s)
            await asyncio.sleep(0.06)

        rounds = range(keys)
        for name, key in (("row", "j"), ("page", "pagedown"), ("row", "k"), ("page", "pageup")):
            down = key in ("j", "pagedown")
            for _ in rounds[: keys // 2]:
                if table.cursor == (len(table.selection) - 1 if down else 0):  # a small graph ends before the keys do
                    await watch.press("g" if down else "G", lambda before=table.cursor: table.cursor != before)
                await pressed(name, key, lambda: (table.cursor, round(table.scroll_y)))
            if name == "page":
                await pressed("ends", "G" if key == "pagedown" else "g", lambda: table.cursor)
        for _ in rounds[: keys // 10]:
            for key in ("underscore", "asterisk"):
                await pressed("fold", key, lambda: len(table.selection))
            await pressed("search", "/", lambda: room.prompt.is_open)
            for letter in WORD[:-1]:
                await pressed("search", letter, lambda: room.prompt.input.value)
            began = time.perf_counter()
            times["search"].append(await watch.press(WORD[-1], lambda: room.prompt.input.value == WORD))
            if not room.status.right.startswith(f"{WORD}: "):
                await watch.until(lambda: room.status.right.startswith(f"{WORD}: "))
            times.setdefault("found", []).append(watch.at - began)
            await asyncio.sleep(0.06)
            await pressed("search", "enter", lambda: room.prompt.is_open)
            await pressed("search", "n", lambda: table.cursor)
            await pressed("filter", "f", lambda: room.prompt.is_open)
            for letter in "op:mm":
                await pressed("filter", letter, lambda: room.prompt.input.value)
            began = time.perf_counter()
            watch.painted.clear()
            room.find._filter("op:mm users>0 shape:*,64")
            await watch.until(lambda: room.rows.filter_text.endswith("64"))
            times.setdefault("settled", []).append(watch.at - began)
            await pressed("filter", "escape", lambda: room.prompt.is_open)
            if room.rows.selection.nodes is not None:
                await watch.until(lambda: room.rows.selection.nodes is None)
            await asyncio.sleep(0.1)
        entry["times"], entry["busy"] = times, busy

    return app, story


def peer_story(run: str, keys: int) -> tuple[Any, Any]:
    """The same cells in a DataTable; folding and filtering are filling it anew, searching is looking through the
    cells."""
    from textual.app import App
    from textual.widgets import DataTable

    from graphdbg.dumps.browse.columns import cell, usual
    from graphdbg.dumps.browse.selection import grouping
    from graphdbg.dumps.browse.table import GraphView
    from graphdbg.dumps.store import resolve_graph

    view = GraphView(resolve_graph(f"{run}/0_0/forward").table)
    columns = usual(view)

    class Peer(App[None]):
        def compose(self) -> Any:
            yield DataTable(cursor_type="row")

        def on_mount(self) -> None:
            self.fill(range(len(view)))

        def fill(self, nodes: Any) -> None:
            table = self.query_one(DataTable)
            table.clear(columns=True)
            table.add_columns(*(column.title for column in columns))
            table.add_rows([cell(view, column.key, node) for column in columns] for node in nodes)

    app = Peer()

    async def story(entry: dict[str, Any]) -> None:
        import asyncio

        watch = Watch(app)
        await watch.until(lambda: bool(app.query(DataTable)) and app.query_one(DataTable).row_count == len(view))
        entry["open"] = watch.at - BEGAN
        table, times = app.query_one(DataTable), {}

        async def done(name: str, change: Any, holds: Any) -> None:
            began = time.perf_counter()
            watch.painted.clear()
            change()
            times.setdefault(name, []).append(await watch.until(holds) - began)
            await asyncio.sleep(0.05)

        for name, key in (("row", "down"), ("page", "pagedown")):
            for _ in range(20):
                before = table.cursor_row
                times.setdefault(name, []).append(
                    await watch.press(key, lambda before=before: table.cursor_row != before)
                )
                await asyncio.sleep(0.03)

        def find() -> None:
            hit = next(at for at in range(1, len(view)) if any(WORD in str(text) for text in table.get_row_at(at)))
            table.move_cursor(row=hit)

        before = table.cursor_row
        await done("found", find, lambda: table.cursor_row != before)
        groups = grouping(view)
        firsts = [row if row >= 0 else groups.starts[~row] for row in groups.rows(groups.to_depth(0))]
        await done("fold", lambda: app.fill(firsts), lambda: table.row_count == len(firsts))
        some = [node for node in range(len(view)) if view.target(node) == "aten.mm.default"]
        await done("settled", lambda: app.fill(some), lambda: table.row_count == len(some))
        entry["times"] = times

    return app, story


# -- in the parent


def measured(run: Path, size: tuple[int, int], keys: int, *, peer: bool = False) -> dict[str, Any]:
    """What a fresh process in a terminal of that size found."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "found.json"
        words = [str(run), "--child", f"{size[0]}x{size[1]}", str(keys), str(int(peer)), str(out)]
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        homes = {"XDG_STATE_HOME": scratch, "XDG_CONFIG_HOME": scratch}
        process = subprocess.Popen(
            [sys.executable, str(HERE), *words],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **homes},
        )
        os.close(follower)
        seen = bytearray()
        while process.poll() is None:
            if select.select([leader], [], [], 0.2)[0]:
                try:
                    seen += os.read(leader, 1 << 16)
                except OSError:
                    break
                del seen[:-20_000]
        process.wait()
        os.close(leader)
        if not out.exists():
            raise SystemExit(f"the child exited with {process.returncode}:\n{seen.decode(errors='replace')[-3000:]}")
        document = json.loads(out.read_text())
        if "error" in document:
            raise SystemExit(f"the child failed: {document['error']}")
        return document


def percentile(times: list[float], part: float) -> float:
    """The value below which that part of the times lies."""
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


KEYS = ("row", "page", "ends", "fold", "search", "filter")


def one_size(run: Path, nodes: int, options: argparse.Namespace) -> bool:
    """All measurements for one number of nodes; whether the bars were met."""
    built = [measured(run, SIZES[0], 0) for _ in range(options.repeat)]
    opens = [item["open"] for item in built]
    met = True
    strict = nodes == max(NODES)

    def bar(name: str, value: float, limit: float, unit: str, scale: float) -> str:
        nonlocal met
        if not strict:
            return ""
        good = value <= limit
        met = met and good
        return f"   {name} {limit * scale:g} {unit} {'met' if good else 'MISSED'}"

    text = f"{nodes:,} nodes: open {min(opens):.3f} s best, {statistics.median(opens):.3f} s median of {len(opens)}, "
    text += f"CPU {min(item['cpu'] for item in built):.3f} s"
    print(text + bar("bar", min(opens), OPEN_BAR_S, "s", 1))
    for size in SIZES:
        result = measured(run, size, options.keys)
        times = result["times"]
        every = [value for name in KEYS for value in times[name]]
        p99 = percentile(every, 0.99)
        print(
            f"  {size[0]}x{size[1]}: {len(every)} keys, p50 {1e3 * percentile(every, 0.5):.1f} ms, p99 "
            f"{1e3 * p99:.1f} ms, "
            f"CPU p99 {1e3 * percentile([value for name in KEYS for value in result['busy'][name]], 0.99):.1f} ms"
            + bar("bar", p99, KEY_BAR_S, "ms", 1e3)
        )
        for name in KEYS:
            low, high = (1e3 * percentile(times[name], part) for part in (0.5, 0.99))
            busy = [1e3 * percentile(result["busy"][name], part) for part in (0.5, 0.99)]
            print(f"    {name:8} p50 {low:6.1f}  p99 {high:6.1f} ms   CPU p50 {busy[0]:6.1f}  p99 {busy[1]:6.1f} ms")
        print(
            f"    filter settled {1e3 * statistics.median(times['settled']):.0f} ms; memory "
            f"{result['memory'] / 2**20:.0f} MB" + bar("bar", result["memory"], MEMORY_BAR, "MB", 1 / 2**20)
        )
        if result["torch"]:
            print("    torch was imported: MISSED")
            met = False
        if size == SIZES[0] and not options.no_peer:
            beside(run, result, min(opens))
    return met


def beside(run: Path, own: dict[str, Any], opened: float) -> None:
    """One line of ratios: how many times longer a DataTable takes."""
    peer = measured(run, SIZES[0], 1, peer=True)
    pairs = [("open", peer["open"], opened)]
    for name, ours in (("row", "row"), ("page", "page"), ("found", "found"), ("fold", "fold"), ("settled", "settled")):
        pairs.append((name, statistics.median(peer["times"][name]), statistics.median(own["times"][ours])))
    for name, theirs, mine in pairs:
        title = {"found": "search", "settled": "filter"}.get(name, name)
        print(f"    DataTable {title:7} {theirs:8.3f} s   ours {mine:7.3f} s   {theirs / mine:7.1f}x")


def main() -> None:
    """Builds the graphs, then measures."""
    if sys.argv[2:3] == ["--child"]:
        run, _, size, keys, peer, out = sys.argv[1:]
        wide, high = size.split("x")
        in_terminal(run, (int(wide), int(high)), int(keys), bool(int(peer)), Path(out))
        return
    parser = argparse.ArgumentParser(description="Time the graph screen beside a DataTable.")
    parser.add_argument("--nodes", type=int, nargs="+", default=list(NODES))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--keys", type=int, default=150)
    parser.add_argument("--keep", type=Path, help="build the graphs there, or use those built there before")
    parser.add_argument("--no-peer", action="store_true", help="leave DataTable out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        met = True
        for nodes in options.nodes:
            run = (options.keep or Path(scratch)) / f"nodes{nodes}"
            if not run.exists():
                subprocess.run([sys.executable, str(HERE), "--build", str(run), str(nodes)], check=True)
            met = one_size(run, nodes, options) and met
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--build"]:
        write_run(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
