"""Actions of the minify screen."""

from __future__ import annotations

from .action import Action

ACTIONS: tuple[Action, ...] = ()
