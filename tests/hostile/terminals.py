"""Hostile terminals: random bytes, sizes and signals in the rooms of the workbench, then terminals that are closed.

Bytes: any byte, keys, cut escape sequences and mouse reports, pastes, answers that nobody asked for; resizes; SIGWINCH,
SIGTSTP and SIGCONT. It must stay alive: an end with code 0 by a key that quits is counted, and it is started again; any
other end fails. After each stretch a run (and a minification) is copied to a name that was never there, the escape key
closes what is open, and a second workbench is started on the same folder, in a terminal of the same size. Both are led
by the same keys to Home and to the room of the stretch, on the copy: every row of both screens must be the same, text,
colours and marks. What keys keep beyond a room is not that: the zoom of Home is brought back with `z`, the states of
rooms and the counts of jobs and errors in the first line are left out. What the bytes are is settled by the seed; when
they arrive is not. A panel that tells a defect of ours fails.

Closings: the window is closed (hang-up), or the process of the terminal is killed, at a random moment, also just after
`q`; half of them while a minification runs that a workbench started. No process of the workbench may be left after 2 s;
the minification goes on, stands in Home of the next workbench, and `5` leads to it. Needs `pyte`.

    python -m tests.hostile.terminals --minutes 10 --seed 1      # bytes
    python -m tests.hostile.terminals --closings 50 --seed 1     # closings
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.tui.real_terminal import RealTerminal

ROOT = Path(__file__).parents[2]

MADE = ROOT / ".cache" / "hostile" / "terminals"
SIZE = (120, 36)
STRETCH_S = 25.0
ROOMS = ("Home", "Graph", "Diff", "Replay", "Minify", "Report")
ENDS_S = 2.0
DEFECT = "defect of graphdbg"
_KEPT = re.compile(r"(?<=[a-z]) [✗✓▶]( ?\d+/\d+|\d+)?| +(\d+ running *(· *)?)?(\d+ errors?: E)?$")
"""In the first line: the states of the rooms, and the counts."""


def recorded() -> Path:
    """A folder with a run that is silently wrong and one that died, made once."""
    MADE.mkdir(parents=True, exist_ok=True)
    for name, plant in (("wrong", "accuracy"), ("died", "compile_error")):
        if not (MADE / name).exists():
            script = str(ROOT / "examples" / "train_residual.py")
            program = [sys.executable, script, "--layers", "2", "--steps", "2", "--plant", plant]
            command = [sys.executable, "-m", "graphdbg", "dump", "-o", name, "--inputs", "first", "--", *program]
            subprocess.run(command, cwd=MADE, capture_output=True, check=False)
    return MADE


@contextlib.contextmanager
def scratch() -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with both runs, and an environment with homes below it; whatever jobs were started there are ended with
    it."""
    with tempfile.TemporaryDirectory(prefix="terminals-", ignore_cleanup_errors=True) as folder:
        work = Path(folder) / "work"
        shutil.copytree(recorded(), work)
        homes = {f"XDG_{kind}_HOME": f"{folder}/{kind.lower()}" for kind in ("STATE", "CONFIG")}
        quiet = {"EDITOR": "true", "VISUAL": "true", "TMPDIR": folder, "PYTHON_HISTORY": f"{folder}/history"}
        try:
            yield work, {**homes, **quiet}
        finally:
            end_jobs(Path(folder))


def jobs(folder: Path) -> Iterator[tuple[list[str], int]]:
    """The words and the process of each job that was started there and is alive."""
    for file in (folder / "state" / "graphdbg" / "jobs").glob("*/job.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # just begun, or gone
            record = json.loads(file.read_text())
            pid = record["process"]["pid"]
            if os.getpgid(pid) == pid and not (file.parent / "exit").exists():
                yield record["words"], pid


def end_jobs(folder: Path) -> None:
    """Ends what the workbench left running."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for _, pid in jobs(folder):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
        time.sleep(0.5)


# -- random bytes


def keys(random: Random) -> bytes:
    """What keyboards send."""
    letters = "jkhlgGnNfsSzZuip[](){}<>,.:/!?=_*+-0123456789aAbBcCdDeEFIJKmMoPrRtTvwWxXyY# \r\t\x7f\x1b"
    return "".join(random.choice(letters) for _ in range(random.randint(1, 12))).encode()


def escapes(random: Random) -> bytes:
    """Sequences that terminals send, some of them cut; answers that nobody asked for."""
    number, letter = random.randint(0, 300), random.choice("ABCDFHPQRSZIOu~t")
    forms = (
        f"\x1b[{letter}",
        f"\x1bO{letter}",
        f"\x1b[{number}~",
        f"\x1b[1;{random.randint(1, 16)}{letter}",
        f"\x1b[{number};5u",
        f"\x1b{chr(random.randint(32, 126))}",
        f"\x1b[?{number}c",
        "\x1b]11;rgb:ffff/ffff/ffff\x1b\\",
        "\x1b[?2026;2$y",
        f"\x1b[{random.randint(1, 40)};{random.randint(1, 99)}R",
        "\x1bP1$r0m\x1b\\",
        "\x1b[I",
        "\x1b[O",
    )
    whole = random.choice(forms)
    return whole[: random.randint(1, len(whole)) if random.random() < 0.3 else len(whole)].encode()


def mouse(random: Random) -> bytes:
    """Reports of the mouse in the three protocols, some of them cut or beyond the screen."""
    button, x, y = random.choice((0, 1, 2, 32, 35, 64, 65, 255)), random.randint(-1, 400), random.randint(-1, 150)
    old = b"\x1b[M" + bytes(min(255, max(32, 32 + value)) for value in (button, x, y))
    forms = (f"\x1b[<{button};{x};{y}{random.choice('Mm')}".encode(), f"\x1b[{32 + button};{x};{y}M".encode(), old)
    whole = random.choice(forms)
    return whole[: random.randint(1, len(whole))] if random.random() < 0.2 else whole


def paste(random: Random) -> bytes:
    """A bracketed paste of any bytes."""
    return b"\x1b[200~" + random.randbytes(random.choice((0, 5, 200))).replace(b"\x1b", b"e") + b"\x1b[201~"


def text(random: Random) -> bytes:
    """Letters of many scripts, wide, combining and of no meaning."""
    return "".join(
        chr(random.choice((233, 0x301, 0x4E2D, 0x1F600, 0xFFFD, 0x200D, 0x85, 0xA0))) for _ in range(5)
    ).encode()


def anything(random: Random) -> bytes:
    """Any byte."""
    return random.randbytes(random.randint(1, 40))


KINDS = (keys, keys, escapes, mouse, mouse, paste, text, anything, anything)


def rarely(random: Random, data: bytes, keep: float = 0.05) -> bytes:
    """With few of the keys that quit, so that rooms see more than their beginning."""
    return bytes(byte for byte in data if byte not in b"qQ\x11" or random.random() < keep)


class Stretch:
    """One workbench under random input in one room, and what came of it."""

    def __init__(self, seed: int, number: int, folder: Path, env: dict[str, str]) -> None:
        self.random, self.number, self.folder, self.env = Random(f"{seed}:{number}"), number, folder, env
        self.room = ROOMS[number % len(ROOMS)]
        self.count: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.terminal = self.begun()

    def begun(self) -> RealTerminal:
        """A workbench that stands in the room, on the run that is there."""
        terminal = RealTerminal([], self.folder, SIZE, self.env)
        self.count["starts"] += 1
        led(terminal, self.room, "wrong", "small")
        return terminal

    def bytes_for(self, seconds: float) -> None:
        """Random input for so long."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if self.terminal.process.poll() is not None and not self.ended():
                return
            self.one()

    def ended(self) -> bool:
        """After an end: whether a key asked for it, and it runs again."""
        code = self.terminal.process.returncode
        self.terminal.rest()
        if code:
            said = self.terminal.text
            self.wrong.append(f"{self.room}: it ended with {code}:\n{said}")
            return False
        self.terminal.hang_up()
        self.count["quits"] += 1
        self.terminal = self.begun()
        return True

    def one(self) -> None:
        """One thing that a terminal does."""
        random, terminal = self.random, self.terminal
        pick = random.random()
        if pick < 0.06:
            terminal.resize(random.choice((1, 20, 60, 80, 120, 250)), random.choice((1, 5, 12, 24, 36, 90)))
            self.count["resizes"] += 1
        elif pick < 0.10:
            self.count["signals"] += 1
            number = random.choice((signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT))
            terminal.signal(number)
            if number == signal.SIGTSTP:  # while it is stopped, the shell has the terminal
                ends = time.monotonic() + 2
                while not stopped(terminal) and time.monotonic() < ends:
                    time.sleep(0.01)
                go_on(terminal)
                terminal.raw(2.0)
            time.sleep(random.choice((0.0, 0.05, 0.3)))
        else:
            data = rarely(random, random.choice(KINDS)(random))
            self.count["bytes"] += len(data)
            terminal.send(data)
        go_on(terminal)
        if random.random() < 0.3:
            terminal.rest(0.1, 1.0)
        time.sleep(random.choice((0.0, 0.01, 0.1)))

    def settle(self) -> bool:
        """What is open is closed, as a person does; whether it answers."""
        terminal = self.terminal
        terminal.resize(*SIZE)
        for _ in range(60):
            go_on(terminal)
            if terminal.process.poll() is not None:
                return self.ended()
            if not terminal.lent:
                break
            terminal.send(b"\x03\n\x04")  # out of a prompt at a node
            time.sleep(1)
        terminal.send(b"\x1b[201~\x1b[I")  # the end of a paste, and the window has the focus
        for _ in range(30):
            terminal.keys("esc")
            terminal.rest(0.05, 1)
        if terminal.process.poll() is not None:
            return self.ended()
        return True

    def defects(self) -> None:
        """Looks at all errors that were told."""
        seen = set[str]()
        for _ in range(20):
            self.terminal.keys("E")
            self.terminal.rest(0.1)
            panel = next((line for line in self.terminal.rows() if line.startswith("╭")), "")
            if not panel or panel in seen:
                break
            seen.add(panel)
            if DEFECT in self.terminal.text:
                self.terminal.keys("Y")
                time.sleep(7)  # as long as it says so
        self.terminal.keys("esc", "esc")
        texts = [file.read_text() for file in self.folder.glob("error*.txt")]
        ends = dict.fromkeys("\n".join(text.splitlines()[-8:]) for text in texts if DEFECT in text)
        self.wrong += [f"{self.room}: {DEFECT}:\n{end}" for end in ends]

    def compared(self) -> None:
        """Whether the room is, on a run that it never saw, as in a workbench that was started just now."""
        name, small = f"fresh{self.number}", f"other{self.number}"
        shutil.copytree(MADE / "wrong", self.folder / name)
        shutil.copytree(self.folder / "small", self.folder / small)
        self.terminal.keys("1")
        with RealTerminal([], self.folder, SIZE, self.env) as fresh:
            for terminal in (self.terminal, fresh):
                led(terminal, "Home", name, small)
            same = False
            for _ in range(3):
                if same := alike(self.terminal, fresh):
                    break
                self.terminal.keys("z")
            self.note("Home", same, fresh)
            if self.room != "Home":
                for terminal in (self.terminal, fresh):
                    led(terminal, self.room, name, small)
                self.note(self.room, alike(self.terminal, fresh), fresh)
            fresh.keys("q")

    def note(self, room: str, same: bool, fresh: RealTerminal) -> None:
        """Counts a comparison, or keeps both screens."""
        self.count["compared"] += 1
        if not same:
            pairs = list(zip(shown(self.terminal), shown(fresh), strict=True))
            texts = [f"  after {after[0]!r}\n  fresh {before[0]!r}" for after, before in pairs if after[0] != before[0]]
            colours = [
                f"  colours of {after[0]!r}" for after, before in pairs if after[0] == before[0] and after != before
            ]
            reported = "\n".join([f"{room} after bytes in {self.room} is not as fresh:", *texts, *colours])
            self.wrong.append(f"{reported}\nafter:\n{self.terminal.text}\nfresh:\n{fresh.text}")


def stopped(terminal: RealTerminal) -> bool:
    """Whether a signal stopped it."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{terminal.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def go_on(terminal: RealTerminal) -> None:
    """What was stopped goes on, as `fg` in a shell does."""
    if stopped(terminal):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(terminal.process.pid, signal.SIGCONT)


def led(terminal: RealTerminal, room: str, run: str, small: str) -> None:
    """Leads a workbench from Home to a room, on a run or minification of the folder."""
    name = small if room == "Minify" else run
    terminal.until("[1 Home")
    terminal.keys("f", "\x15", name, "enter")
    terminal.until(lambda text: f" {name} " in text.replace("▸", " ").replace("▾", " "))
    if room != "Minify":  # its compiles come when they are read
        terminal.until("function")
        terminal.keys("g", "l")
        terminal.until(" 0_0 ")
    terminal.rest()
    terminal.keys(*("G" if room == "Minify" else "gj"))
    terminal.rest()
    if room == "Home":
        return
    terminal.keys({"Graph": "2", "Diff": "3", "Replay": "4", "Minify": "enter", "Report": "6"}[room])
    if room == "Diff":
        terminal.until("esc close")
        terminal.keys("backward", "enter")
        terminal.until("│ B ")
    terminal.until(f"[{ROOMS.index(room) + 1} {room}")
    terminal.rest(0.6, 5)


def shown(terminal: RealTerminal) -> list[tuple[str, list[tuple[str, ...]]]]:
    """The rows with their colours and marks, but for the counts at the right of the first."""
    screen = terminal.screen()
    rows = []
    for y, line in enumerate(screen.display):
        cells = [
            (cell.fg, cell.bg, *(name for name in ("bold", "italics", "underscore", "reverse") if getattr(cell, name)))
            for cell in (screen.buffer[y][x] for x in range(screen.columns))
        ]
        rows.append((line, cells) if y else (_first(line), []))
    return rows


def _first(line: str) -> str:
    """The rooms, and the end of where we are: what stands there is cut where the counts need room."""
    rooms, _, where = _KEPT.sub(" ", line.rstrip()).partition("6 Report")
    return " ".join(rooms.split()) + where.rstrip()[-8:]


def alike(screen: RealTerminal, other: RealTerminal, limit_s: float = 8.0) -> bool:
    """Whether both show the same, as soon as they do."""
    ends = time.monotonic() + limit_s
    while time.monotonic() < ends:
        if shown(screen) == shown(other):
            return True
        time.sleep(0.2)
    return False


def bytes_in_rooms(seed: int, minutes: float, first: int = 0, stretch_s: float = STRETCH_S) -> list[str]:
    """Stretches until so many minutes of random input have come; what went wrong."""
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    number = first
    while (number - first) * stretch_s < minutes * 60:
        with scratch() as (work, env):
            with tempfile.TemporaryDirectory() as unpacked:
                shutil.unpack_archive(ROOT / "tui" / "tour.zip", unpacked)
                shutil.copytree(Path(unpacked) / "small", work / "small")
            stretch = Stretch(seed, number, work, env)
            try:
                stretch.bytes_for(stretch_s)
                if not stretch.wrong and stretch.settle():
                    stretch.defects()
                    stretch.compared()
            except TimeoutError as error:
                stretch.wrong.append(f"{stretch.room}: {error}")
            finally:
                stretch.terminal.__exit__()
            counts.update(stretch.count)
            counts[f"in {stretch.room}"] += 1
            for line in stretch.wrong:
                print(f"seed {seed}, stretch {number}: {line}", flush=True)
            wrong += stretch.wrong
            number += 1
            print(f"{number - first}: {stretch.room}, {dict(stretch.count)}, wrong so far {len(wrong)}", flush=True)
    print(f"seed {seed}: {(number - first) * stretch_s / 60:.1f} minutes of input, {dict(counts)}; wrong: {len(wrong)}")
    return wrong


# -- closings


HOLDER = """
import json, sys, time
from pathlib import Path
from tests.tui.real_terminal import RealTerminal
words, folder, env = json.loads(sys.argv[1])
terminal = RealTerminal(words, Path(folder), env=env)
print(terminal.process.pid, flush=True)
time.sleep(1000)
"""
"""A terminal's process: killed, it leaves the workbench without one."""


def alive(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    results = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):  # it ended meanwhile
            state, _, _, leader, *_ = stat.read_text().rpartition(")")[2].split()
            if int(leader) == session and state not in "ZX":
                results.append(int(stat.parent.name))
    return results


class Closings:
    """Terminals that are closed, and what was left."""

    def __init__(self, seed: int, folder: Path, env: dict[str, str]) -> None:
        self.random, self.folder, self.env = Random(f"{seed}:closings"), folder, env
        self.count: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.slowest_s = 0.0

    def searches(self) -> list[tuple[str, int]]:
        """OUT and process of the minifications that run."""
        return [(words[words.index("-o") + 1], pid) for words, pid in jobs(self.folder.parent) if words[0] == "minify"]

    def one(self, number: int, *, minifying: bool) -> None:
        """One terminal, opened and closed."""
        random = self.random
        how = random.choice(("window", "window", "parent"))
        self.count[how] += 1
        if how == "parent":
            self.killed_parent(number)
        else:
            with RealTerminal(["died/0_0/forward"] if minifying else [], self.folder, SIZE, self.env) as terminal:
                when = self.moment(terminal, minifying)
                self.count[when] += 1
                searches = self.searches()
                terminal.hang_up()
                self.gone(terminal.process.pid, f"{number}, {when}", searches)
        if minifying:
            self.found_again(number)

    def moment(self, terminal: RealTerminal, minifying: bool) -> str:
        """Waits for it; where nothing is minified, a search is begun first."""
        random = self.random
        if minifying and not self.searches():
            terminal.until("f filter")
            terminal.keys("5")
            terminal.until("enter starts it")
            terminal.keys("enter")
            self.count["searches"] += 1
            ends = time.monotonic() + 5
            while not self.searches() and time.monotonic() < ends:
                time.sleep(0.02)
            time.sleep(random.choice((0.0, 0.5, 2.0)))
            return "after a search began"
        if random.random() < 0.25:
            time.sleep(random.uniform(0, 1.2))
            return "while it starts"
        terminal.until("f filter")
        if minifying and random.random() < 0.5:
            terminal.keys("5")
        terminal.keys(*random.sample(("j", "2", "4", "3", "esc", "1", "?", "6", "j" * 300), random.randint(0, 4)))
        if random.random() < 0.5:
            terminal.keys("esc")
            terminal.send(random.choice((b"q", b"qb")))
            time.sleep(random.choice((0.0, 0.01, 0.05, 0.1, 0.3)))
            return "just after q"
        time.sleep(random.uniform(0, 0.5))
        return "in a room"

    def killed_parent(self, number: int) -> None:
        """The process of the terminal is killed."""
        given = json.dumps([[], str(self.folder), self.env])
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, given], cwd=ROOT, stdout=subprocess.PIPE)
        assert holder.stdout is not None
        pid = int(holder.stdout.readline())
        time.sleep(self.random.uniform(0, 3))
        searches = self.searches()
        holder.kill()
        holder.wait()
        self.gone(pid, f"{number}, its terminal's process killed", searches)

    def gone(self, pid: int, when: str, searches: list[tuple[str, int]]) -> None:
        """Nothing of it may be left in time, and every search goes on, or ended by itself."""
        began = time.monotonic()
        while (left := alive(pid)) and time.monotonic() - began < ENDS_S + 3:
            time.sleep(0.02)
        took = time.monotonic() - began
        self.slowest_s = max(self.slowest_s, took)
        if took > ENDS_S:
            self.wrong.append(f"closing {when}: {took:.1f} s, left: {left}")
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        passing = [words for words, _ in jobs(self.folder.parent) if words[0] in ("diff", "report")]
        self.wrong += [f"closing {when}: {words} is left" for words in passing]
        for out, process in searches:
            done = (self.folder / out / "case").is_dir()
            if process not in [other for _, other in self.searches()] and not done:
                self.wrong.append(f"closing {when}: the minification into {out} did not go on")

    def found_again(self, number: int) -> None:
        """The next workbench lists a search that runs, and `5` goes to it."""
        running = self.searches()
        if not running:
            return
        out = running[0][0]
        with RealTerminal([], self.folder, SIZE, self.env) as terminal:
            try:
                terminal.until(lambda text: any(out in line and "running" in line for line in text.splitlines()), 10)
                terminal.keys("5")
                terminal.until(lambda text: "[5 Minify" in text and out in text.splitlines()[0], 10)
                self.count["found again"] += 1
            except TimeoutError as error:
                if self.searches():
                    self.wrong.append(f"closing {number}: the search is not found again: {error}")
            terminal.keys("q", "b")


def closings(seed: int, count: int) -> list[str]:
    """So many terminals closed, half of them while a minification runs; what went wrong."""
    with scratch() as (work, env):
        closing = Closings(seed, work, env)
        for number in range(count):
            closing.one(number, minifying=number % 2 == 1)
            print(f"{number + 1}: wrong so far {len(closing.wrong)}, slowest {closing.slowest_s:.2f} s", flush=True)
        print(*closing.wrong, sep="\n")
        print(
            f"seed {seed}: {count} terminals closed, {dict(closing.count)}; the slowest end took "
            f"{closing.slowest_s:.2f} s; "
            f"wrong: {len(closing.wrong)}"
        )
        return closing.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0.0, help="of random input")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the stretch to begin with")
    parser.add_argument("--stretch", type=float, default=STRETCH_S, metavar="S", help="seconds in one room")
    parser.add_argument("--closings", type=int, default=0, metavar="N", help="terminals to close")
    asked = parser.parse_args()
    wrong = bytes_in_rooms(asked.seed, asked.minutes, asked.first, asked.stretch) if asked.minutes else []
    wrong += closings(asked.seed, asked.closings) if asked.closings else []
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
