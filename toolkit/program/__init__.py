"""A program's compiled calls, each beside eager: which call of which function departs, and from which rung on."""
