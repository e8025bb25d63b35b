"""Actions of the home screen."""

from __future__ import annotations

from .action import Action

ACTIONS: tuple[Action, ...] = ()
