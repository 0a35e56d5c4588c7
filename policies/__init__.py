"""Policies: they decide and never act; no clock, no sleep, no I/O."""
