"""A page of `graphdbg pack` in a browser: first paint, keys, search, requests, and a picture. Needs PySide6.

    python -m tests.dumps.open_page page.html [--dark] [--size 1400x900] [--picture page.png] [--type KEYS]

KEYS as a person would press them after the checks, e.g. "/relu<Enter>jj": <Enter>, <Esc> and letters. Exits with 1
where a check fails: first paint after a second, a request to anywhere else, an error of the script, a key without
effect.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

PAINT_S = 1.0
_KEY = re.compile(r"<\w+>|.")


def main() -> int:
    """One page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--size", default="1400x900")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--open", default="", help="a graph, or what else stands behind the # of a link")
    parser.add_argument("--type", default="", dest="keys")
    asked = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    flags = f"--no-sandbox --disable-gpu --blink-settings=preferredColorScheme={0 if asked.dark else 1}"
    os.environ["QTWEBENGINE_CHROMIUM_FLAGS"] = flags
    try:
        from PySide6.QtCore import QEventLoop, Qt, QTimer, QUrl
        from PySide6.QtTest import QTest
        from PySide6.QtWebEngineCore import QWebEnginePage, QWebEngineProfile, QWebEngineUrlRequestInterceptor
        from PySide6.QtWebEngineWidgets import QWebEngineView
        from PySide6.QtWidgets import QApplication
    except ImportError as error:
        print(f"needs a browser: pip install PySide6 ({error})", file=sys.stderr)
        return 3
    app = QApplication([])
    requests: list[str] = []
    said: list[str] = []

    class Requests(QWebEngineUrlRequestInterceptor):
        def interceptRequest(self, info) -> None:
            requests.append(info.requestUrl().toString())

    class Page(QWebEnginePage):
        def javaScriptConsoleMessage(self, level, message, line, source) -> None:
            said.append(f"line {line}: {message}")

    profile, requested = QWebEngineProfile(), Requests()
    profile.setUrlRequestInterceptor(requested)
    view = QWebEngineView()
    page = Page(profile, view)
    view.setPage(page)
    view.resize(*map(int, asked.size.split("x")))
    view.show()

    def wait(seconds: float) -> None:
        loop = QEventLoop()
        QTimer.singleShot(int(seconds * 1000), loop.quit)
        loop.exec()

    def ask(script: str) -> object:
        loop, reported = QEventLoop(), []
        page.runJavaScript(f"JSON.stringify({script})", 0, lambda value: (reported.append(value), loop.quit()))
        QTimer.singleShot(20_000, loop.quit)
        loop.exec()
        return json.loads(reported[0]) if reported and reported[0] else None

    def press(keys: str) -> None:
        names = {"<Enter>": Qt.Key.Key_Return, "<Esc>": Qt.Key.Key_Escape, "/": Qt.Key.Key_Slash}
        for key in _KEY.findall(keys):
            QTest.keyClick(view.focusProxy(), names.get(key, key))
            wait(0.15)

    loop, started = QEventLoop(), time.monotonic()
    page.loadFinished.connect(loop.quit)
    view.load(QUrl.fromLocalFile(str(asked.page.resolve())))
    loop.exec()
    loaded = time.monotonic() - started
    wait(1.0)
    paint = ask("performance.getEntriesByType('paint').map(one => [one.name, one.startTime])") or []
    first = {name: ms / 1000 for name, ms in paint}.get("first-contentful-paint", loaded)
    wrong = [f"first paint after {first:.2f} s"] if first > PAINT_S else []
    view.focusProxy().setFocus()
    rows = ask("document.querySelectorAll('details[id^=c-]').length")
    ask("(window.first = document.querySelector('details[id^=c-]'), window.was = first.open, first.open = false, 1)")
    checks = {
        "j": "document.activeElement.parentElement === first",
        "<Enter>": "first.open",
        "<Esc>": "!first.open && document.activeElement.parentElement === first",
        "/zzznothing": "[...document.querySelectorAll('details[id^=c-]')].every(one => one.hidden)",
        "<Esc> ": "![...document.querySelectorAll('details[id^=c-]')].some(one => one.hidden)",
    }
    for keys, wanted in checks.items() if rows else ():
        press(keys.strip())
        if not ask(wanted):
            wrong.append(f"after {keys!r} it is not so that {wanted}")
    ask("(first.open = was, 1)")
    graph = ask("JSON.parse(document.getElementById('data').textContent).graphs.map(one => one.id)") or []
    if graph:
        started = time.monotonic()
        ask(f"(location.hash = {json.dumps(graph[-1])}, 1)")
        wait(0.3)
        opened = ask("[document.getElementById('graph').open, document.querySelectorAll('#graph tbody tr').length]")
        press("jj")
        reported = ask("document.querySelector('#graph footer').textContent")
        print(f"{graph[-1]}: {opened}, {time.monotonic() - started:.2f} s; after jj: {str(reported)[:100]!r}")
        last = "[...document.querySelectorAll('#graph footer a')].pop()"
        if ask(f"{last}?.textContent.includes(':') && !!document.querySelector('.source')"):
            ask(f"({last}.click(), 1)")
            if not ask("document.getElementById('line')?.textContent && !document.getElementById('graph').open"):
                wrong.append("the line of a node does not lead to its source")
        press("<Esc>")
        if not opened or not opened[0] or ask("document.getElementById('graph').open"):
            wrong.append("the table of nodes does not open and close")
    if asked.open:
        ask(f"(location.hash = {json.dumps(asked.open)}, 1)")
        wait(0.5)
    press(asked.keys)
    wait(0.5)
    if asked.picture:
        view.grab().save(str(asked.picture))
    elsewhere = [request for request in requests if not request.startswith(("file:", "data:"))]
    wrong += [f"request to {item}" for item in elsewhere] + said
    print(
        f"{asked.page}: {asked.page.stat().st_size:,} bytes, first paint {first:.2f} s, loaded {loaded:.2f} "
        f"s, {rows} rows, "
        f"{len(requests)} requests, {len(elsewhere)} to another host"
    )
    print("\n".join(f"WRONG: {item}" for item in wrong) or "keys and search work")
    page.deleteLater()
    app.processEvents()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
