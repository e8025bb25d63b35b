"""Runs a program's compiled calls beside eager: which call of which function differs, and from which rung on."""
