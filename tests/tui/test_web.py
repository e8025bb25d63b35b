"""The workbench in a browser: who is let in, what the page loads, and that it is the same app."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar, WSServerHandshakeError, web

from graphdbg.dumps.errors import EnvironmentLackError
from graphdbg.tui.web import HOST, Guarded, command_line, is_ours, listening

TOKEN = "a-token"


async def _served(story: Any) -> None:
    """Runs a story on a server whose pages run a program that ends when it is told anything."""
    with listening(0) as result:
        port = result.getsockname()[1]
        server = Guarded(f"{sys.executable} -c 'import sys; sys.stdin.buffer.read(5)'", port, TOKEN)
        runner = web.AppRunner(await server._make_app())
        await runner.setup()
        await web.SockSite(runner, result).start()
        try:
            async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as client:
                await story(client, f"http://{HOST}:{port}")
        finally:
            await runner.cleanup()


def test_nobody_comes_in_without_the_token() -> None:
    async def story(client: ClientSession, base: str) -> None:
        for path in ("/", "/?token=", "/?token=b-token", "/ws", "/static/js/textual.js", "/download/x", "/?fontsize=3"):
            async with client.get(base + path) as answer:
                assert answer.status == 403, path
                assert "graphdbg" in await answer.text()
        with pytest.raises(WSServerHandshakeError) as refused:
            await client.ws_connect(base + "/ws", origin=base)
        assert refused.value.status == 403

    asyncio.run(_served(story))


def test_the_token_opens_once_and_the_cookie_from_then_on() -> None:
    async def story(client: ClientSession, base: str) -> None:
        async with client.get(f"{base}/?token={TOKEN}", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, "/")
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie and "SameSite=Lax" in cookie
        async with client.get(base) as answer:
            page = await answer.text()
            assert answer.status == 200 and answer.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert TOKEN not in page
        assert {urls.split("/")[2] for urls in re.findall(r"(?:https?|wss?)://[^\"' )]+", page)} <= {
            base[7:],
            "www.w3.org",
        }
        async with client.get(f"{base}/static/js/textual.js") as answer:
            assert answer.status == 200
        async with client.ws_connect(f"{base}/ws", origin=base) as socket_:
            await socket_.send_json(["ping", "1"])
            assert await socket_.receive_json() == ["pong", "1"]
        for size in ("width=999999&height=24", "width=80&height=-1"):
            async with client.get(f"{base}/ws?{size}", headers={"Origin": base}) as answer:
                assert answer.status == 400, size

    asyncio.run(_served(story))


def test_a_page_of_another_site_is_not_answered_even_with_the_cookie() -> None:
    async def story(client: ClientSession, base: str) -> None:
        cookie = {"Cookie": f"graphdbg-{base.rsplit(':', 1)[1]}={TOKEN}"}
        async with client.get(base, headers=cookie) as answer:
            assert answer.status == 200
        for headers in (
            {"Host": "evil.example"},
            {"Host": "127.0.0.1.evil.example"},
            {"Origin": "http://evil.example"},
        ):
            async with client.get(base, headers={**cookie, **headers}) as answer:
                assert answer.status == 403, headers
        for origin in ("http://evil.example", "null", None):
            with pytest.raises(WSServerHandshakeError):
                await client.ws_connect(f"{base}/ws", headers=cookie, origin=origin)
        host = f"localhost:{9000}"  # the other end of ssh -L
        async with client.get(base, headers={**cookie, "Host": host}) as answer:
            assert f"ws://{host}/ws" in await answer.text()

    asyncio.run(_served(story))


def test_names_of_this_machine() -> None:
    assert all(map(is_ours, ["127.0.0.1:8765", "localhost", "[::1]:80"]))
    assert not any(map(is_ours, ["", "localhost.evil.example", "evil.example:8765", "127.0.0.2", "[::1", "a@evil"]))


def test_a_taken_port_is_told_with_a_free_one() -> None:
    with listening(0) as result:
        result.listen()
        with pytest.raises(EnvironmentLackError, match="cannot serve on port") as reported:
            listening(result.getsockname()[1])
    free = int(reported.value.fix.rsplit(" ", 1)[1])
    with socket.socket() as again:
        again.bind((HOST, free))


def test_the_child_is_the_same_command_and_a_name_is_no_option_of_it() -> None:
    assert command_line("--help; rm -rf", True).endswith("-m graphdbg tui --follow -- '--help; rm -rf'")


@pytest.fixture
def address(work: Path) -> Iterator[str]:
    """A real `graphdbg tui --web myrun` and the address that it printed."""
    with listening(0) as result:
        port = result.getsockname()[1]
    words = [sys.executable, "-m", "graphdbg", "tui", "--web", "--port", str(port), "myrun"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert server.stdout is not None
    line = server.stdout.readline().strip()
    try:
        yield line
        shown = Path(f"/proc/{server.pid}/cmdline")
        if shown.exists():
            assert line.split("=")[1] not in shown.read_text()
    finally:
        os.killpg(server.pid, signal.SIGINT)
        _, said = server.communicate(timeout=20)
    assert "ssh -L" in said and "Traceback" not in said, said


def browser() -> str | None:
    """A Chromium on this machine."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.slow
def test_a_real_browser_shows_home_and_takes_keys(address: str, tmp_path: Path) -> None:
    program = browser()
    if program is None:
        pytest.skip("no Chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    asked: list[str] = []
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1200, "height": 700})
        page.on("request", lambda request: asked.append(request.url))
        assert page.goto(re.sub("token=.*", "token=wrong", address)).status == 403
        assert page.goto(address).status == 200
        assert "token" not in page.url
        page.locator("body.-first-byte").wait_for(timeout=60_000)
        first = _settled(page)
        (tmp_path / "home.png").write_bytes(first)
        page.locator("textarea").first.focus()
        page.keyboard.press("?")
        helped = _settled(page, first)
        (tmp_path / "help.png").write_bytes(helped)
        page.keyboard.press("Escape")
        _settled(page, helped)
        page.keyboard.press("q")
        page.locator("body.-closed").wait_for(timeout=30_000)
        chromium.close()
    assert all(re.match(r"(http|ws)://127\.0\.0\.1:|data:", url) for url in asked), asked


def _settled(page: Any, other: bytes = b"") -> bytes:
    """The picture of the page once it is another one and stays so."""
    last = b""
    for _ in range(100):
        now = page.screenshot()
        if now == last and now != other:
            return now
        last = now
        page.wait_for_timeout(200)
    raise AssertionError("the page did not change, or never rested")
