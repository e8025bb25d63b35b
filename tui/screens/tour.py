"""The tour: on a small recorded run each step names one key, waits until it was pressed, and goes on. Does nothing
itself.

The run and its finished minification are data of the package (`tour.zip`, written by `tests/tui/record_tour.py`). They
are unpacked into a temporary folder: nothing of the user's is touched, and no torch is needed.

"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import Static

from ...dumps import temporary
from ..here import Here
from ..key_line import shown
from ..registry import BY_ID

if TYPE_CHECKING:
    from ..app import Workbench

RECORDED = Path(__file__).parent.parent / "tour.zip"
RUN, OUT = "gpt.packed", "small"
"""What the archive holds: a packed run in which a compile failed, and the folder of a minification of that graph."""


@dataclass(frozen=True)
class TourStep:
    """One step. `text`: what there is to see; `action`: what the user is asked to do; `then` is called after it."""

    text: str
    action: str
    then: Callable[[Workbench, Path], None] | None = None


STEPS = (
    TourStep("Home: a training run that stopped while it compiled. The cursor is on the graph that failed, its error "
           "beside it.",
         "home.open"),
    TourStep("Graph: a line for each node, in the order in which they run, with shape, type, module and the line of "
           "your program. "
         "The strokes on the left lead to users.", "list.down"),
    TourStep("Every node says where its value goes.", "graph.users"),
    TourStep("That was a jump; every jump can be taken back.", "graph.back"),
    TourStep("A large model is easier to read by module.", "graph.fold_all"),
    TourStep("And back to all nodes.", "graph.unfold_all"),
    TourStep("Who is to blame: your model, a decomposition, Inductor? Replay runs the graph again on every rung of a "
           "ladder.",
         "app.replay"),
    TourStep("Nothing runs before you ask for it. The next screen shrinks a graph for as long as it fails the same "
           "way; here is one "
         "that has ended.", "app.minify", lambda app, folder: app.go("minify", Here(out=str(folder / OUT)))),
    TourStep("This is how it became small, query by query; every step can be looked at. The last one writes it down.",
           "app.report"),
    TourStep("A repro of a few lines and the text of an issue. All that you see here a command prints, too.",
           "app.command"),
    TourStep("y would copy the line. Close this, then look at all keys of a screen.", "app.help"),
)  # fmt: skip


class TourLine(Static):
    """The step in front of the user; the workbench below works as always."""

    can_focus = False
    DEFAULT_CSS = """
    TourLine { dock: bottom; height: auto; border: round $warning; padding: 0 1; margin-bottom: 1;
        background: $surface; }
    """


class Tour:
    """The tour, and the step that the user is at."""

    def __init__(self, app: Workbench, folder: Path) -> None:
        self.app, self.folder = app, folder
        self.at = 0
        self._line: TourLine | None = None

    @property
    def step(self) -> TourStep | None:
        """The step that is waited for; None after the last."""
        return STEPS[self.at] if self.at < len(STEPS) else None

    def did(self, action: str) -> None:
        """Takes note of an action: the tour goes on where it was the wanted one, and follows to where the user went."""
        step = self.step
        if step is not None and action == step.action:
            if step.then is not None:
                step.then(self.app, self.folder)
            self.at += 1
        self.show()

    def show(self) -> None:
        """Writes the step into the room in front."""
        room = self.app.room
        if room is None:
            return
        if self._line is None or self._line.parent is not room:
            if self._line is not None:
                self._line.remove()
            self._line = TourLine(markup=False)
            room.mount(self._line)
        self._line.update(self.step_text())
        self._line.border_title = Text(f"tour {min(self.at + 1, len(STEPS))}/{len(STEPS)}")
        self._line.border_subtitle = Text("esc leaves the tour")

    def step_text(self) -> Text:
        """The text of the step and its key."""
        step = self.step
        if step is None:
            return Text("That is all: esc leaves the tour. `graphdbg dump -o myrun train.py` records a run of yours.")
        action = BY_ID[step.action]
        text = Text(step.text + "  Press ")
        text.append(f" {shown(action.keys[0])} ", "reverse bold")
        return text.append(f"  {action.label}")

    def leave(self) -> None:
        """Ends the tour and removes what it unpacked."""
        if self._line is not None:
            self._line.remove()
        temporary.remove(self.folder)


def start(app: Workbench) -> Tour:
    """Opens the recorded run and shows the first step."""
    folder = temporary.make("graphdbg-tour-")
    with zipfile.ZipFile(RECORDED) as packed:
        packed.extractall(folder)
    tour = Tour(app, folder)
    app.go("home", Here(run=str(tour.folder / RUN)))
    tour.show()
    return tour
