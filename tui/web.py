"""`graphdbg tui --web`: the same workbench in a browser on this machine, behind a token. Shows nothing of its own.

Each page runs `graphdbg tui` as a process that textual-serve talks to. The token stays in this server and the browser's
cookie: it is in no command line, no environment and no log. Only requests to names of this machine are answered
(another site cannot point its own name here), for pages and websocket alike, and the page loads nothing from elsewhere.

For example: `serve("myrun", follow=False, port=8765)` gives `http://127.0.0.1:8765/?token=...`.
"""

from __future__ import annotations

import hmac
import re
import secrets
import shlex
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web
from textual_serve.server import Server

from ..dumps.errors import ScreenError
from ..dumps.output import emit, say
from .jobs import command_of

HOST = "127.0.0.1"
NAMES = frozenset(("127.0.0.1", "localhost", "::1"))
"""The names of this machine for a browser here, or at the other end of `ssh -L`; the port there may be another one."""
LARGEST = 1000
"""The most columns and lines of a page."""
SHUTDOWN_S = 5.0
"""How long an open page can keep the server from ending; by default it would be a minute."""
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'"
)
FONT = (
    '<style>@font-face { font-family: "Roboto Mono"; '
    'src: url("/static/fonts/RobotoMono-VariableFont_wght.ttf"); }</style>'
)
ELSEWHERE = re.compile(r"<link[^>]*https?://(?!127\.0\.0\.1)[^>]*>")
REFUSED = "graphdbg: this page needs the whole address that `graphdbg tui --web` printed, with its token.\n"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guarded(Server):
    """textual-serve's server behind a token."""

    def __init__(self, command: str, port: int, token: str) -> None:
        super().__init__(command, host=HOST, port=port, title="graphdbg")
        self._token = token
        self._cookie = f"graphdbg-{port}"

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._door)
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Says nothing, because `serve` did."""

    @web.middleware
    async def _door(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_ours(request.host) or not self._is_own_origin(request):
            raise web.HTTPForbidden(text="graphdbg: this is answered on this machine only.\n")
        given = request.query.get("token")
        if given is not None and request.path == "/":
            if not self._is_token(given):
                raise web.HTTPForbidden(text=REFUSED)
            opened = web.HTTPFound("/")
            opened.set_cookie(self._cookie, self._token, httponly=True, samesite="Lax", path="/")
            raise opened
        if not self._is_token(request.cookies.get(self._cookie, "")):
            raise web.HTTPForbidden(text=REFUSED)
        if any(not is_size(request.query.get(name, "80")) for name in ("width", "height")):
            raise web.HTTPBadRequest(text=f"graphdbg: a page has at most {LARGEST} columns and lines.\n")
        return await handler(request)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _is_own_origin(self, request: web.Request) -> bool:
        """Whether a websocket comes from our own page: a page of another site may open one, and its browser says where
        it came from."""
        origin = request.headers.get("Origin")
        if origin is None:
            return request.path != "/ws"
        return urlsplit(origin).netloc == request.host and is_ours(request.host)

    async def handle_index(self, request: web.Request) -> web.Response:  # type: ignore[override]
        """The page, with addresses as the browser reached us, and no part of it from elsewhere."""
        page = await super().handle_index(request)
        assert isinstance(page, web.Response) and page.text is not None
        own = f"{HOST}:{self.port}"
        text = page.text.replace(f"//{own}", f"//{request.host}")
        page.text = ELSEWHERE.sub(FONT, text)
        page.headers["Content-Security-Policy"] = POLICY
        page.headers["Referrer-Policy"] = "no-referrer"
        page.headers["X-Frame-Options"] = "DENY"
        page.headers["Cache-Control"] = "no-store"
        return page


def is_ours(host: str) -> bool:
    """Whether a Host header names this machine.

    >>> is_ours("localhost:9000"), is_ours("localhost.evil.example")
    (True, False)
    """
    try:
        return urlsplit(f"//{host}").hostname in NAMES
    except ValueError:
        return False


def is_size(text: str) -> bool:
    """Whether a page may have so many columns or lines, all of which the process that draws it holds.

    >>> is_size("120"), is_size("999999")
    (True, False)
    """
    return text.isascii() and text.isdigit() and int(text[:6]) <= LARGEST


def command_line(target: str | None, follow: bool) -> str:
    """The command line that each page runs."""
    words = ["tui", *(["--follow"] if follow else []), *(["--", target] if target else [])]
    return shlex.join(command_of(words))


def listening(port: int) -> socket.socket:
    """A socket on this machine only; raises EnvironmentLackError, with a port that is free, where it is taken."""
    server_socket = socket.socket()
    server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server_socket.bind((HOST, port))
    except OSError as error:
        server_socket.close()
        with socket.socket() as other:
            other.bind((HOST, 0))
            free = other.getsockname()[1]
        raise ScreenError(f"cannot serve on port {port}", error.strerror or str(error), f"add --port {free}") from error
    return server_socket


def serve(target: str | None, *, follow: bool, port: int) -> None:
    """Serves until Ctrl-C. Prints the address with its token on stdout. Raises EnvironmentLackError where the port is
    taken."""
    token = secrets.token_urlsafe(24)
    with listening(port) as server_socket:
        emit(f"http://{HOST}:{port}/?token={token}", as_json=False)
        say(f"from another machine: ssh -L {port}:{HOST}:{port} {socket.gethostname()}   and then that address there")
        say("Ctrl-C ends it; jobs go on.")
        server = Guarded(command_line(target, follow), port, token)
        web.run_app(
            server._make_app(), sock=server_socket, print=lambda *_: None, access_log=None, shutdown_timeout=SHUTDOWN_S
        )
