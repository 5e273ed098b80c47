"""Turns publications into MQ messages and back: pure translation."""
