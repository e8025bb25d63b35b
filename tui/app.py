"""The app: holds the stack of screens and does what every screen can ask for. No logic of a screen, none of a run.

>>> Workbench(HomeRoom(Here())).run()
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.binding import Binding

from ..dumps.errors import UsageError
from .here import Here
from .jobs import Job
from .room import Room
from .widgets.trouble import Trouble


class Workbench(App[None]):
    """The terminal workbench."""

    TITLE = "graphdbg"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Binding]] = []
    CSS = """
    #crumbs { dock: top; height: 1; background: $panel; color: $text; padding: 0 1; text-style: bold; }
    """

    def __init__(self, first: Room) -> None:
        super().__init__()
        self.first = first
        self.jobs: set[Job] = set()
        """What ends with the workbench."""

    def on_mount(self) -> None:
        """Shows the first screen."""
        self.push_screen(self.first)

    @property
    def room(self) -> Room | None:
        """The screen that is seen, where it is one of ours."""
        return self.screen if isinstance(self.screen, Room) else None

    # -- what all screens can ask for

    def do_app_back(self) -> None:
        """Closes the panel of errors, else the screen."""
        room = self.room
        if room is not None and room.query_one(Trouble).hide():
            return
        if len(self.screen_stack) > 2:
            self.pop_screen()

    def do_app_home(self) -> None:
        """The runs and graphs."""
        from .screens.home import HomeRoom

        self.go(HomeRoom, Here(run=self.here.run))

    def do_app_graph(self) -> None:
        """The nodes of the graph."""
        from .screens.graph import GraphRoom

        self.go(GraphRoom, self._with_graph())

    def do_app_diff(self) -> None:
        """The graph beside another."""
        from .screens.diff import DiffRoom

        self.go(DiffRoom, self._with_graph())

    def do_app_replay(self) -> None:
        """Rungs and values."""
        from .screens.replay import ReplayRoom

        self.go(ReplayRoom, self._with_graph())

    def do_app_minify(self) -> None:
        """A minification that runs, or the start of one."""
        from .screens.minify import MinifyRoom

        self.go(MinifyRoom, self.here if self.here.out else self._with_graph())

    def do_app_report(self) -> None:
        """Repro and issue text."""
        from .screens.report import ReportRoom

        self.go(ReportRoom, self.here if self.here.out else self._with_graph())

    def do_app_quit(self) -> None:
        """Leaves; what only the screens show is ended."""
        for job in list(self.jobs):
            job.kill()
        self.exit()

    def go(self, kind: type[Room], here: Here) -> None:
        """Shows a screen: the one that is open for the same thing, else a new one in front."""
        for screen in self.screen_stack:
            if type(screen) is kind and isinstance(screen, Room) and screen.here == here:
                while self.screen is not screen:
                    self.pop_screen()
                return
        self.push_screen(kind(here))

    @property
    def here(self) -> Here:
        """What the screen in front is about."""
        return self.room.here if self.room else self.first.here

    def _with_graph(self) -> Here:
        if self.here.graph is None:
            raise UsageError("no graph is chosen", "this screen is about one graph", "move to a graph and press enter")
        return self.here
