"""The terminal workbench: screens that show what the other rooms know, and start their commands. Decides nothing."""
