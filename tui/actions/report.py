"""Actions of the report screen."""

from __future__ import annotations

from .action import Action

ACTIONS: tuple[Action, ...] = ()
