"""Actions of the replay screen."""

from __future__ import annotations

from .action import Action

ACTIONS: tuple[Action, ...] = ()
