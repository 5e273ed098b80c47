"""Coded character sets by their identifiers (CCSID), and the host sets of East Asia that Python does not have."""
