"""Actions of the diff screen."""

from __future__ import annotations

from .action import Action

ACTIONS: tuple[Action, ...] = ()
