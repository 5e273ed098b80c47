"""Reasons for which a socket is not read."""

from __future__ import annotations

from enum import IntFlag


class Stop(IntFlag):
    """Why nothing is read from a socket. One reason that ends leaves the others."""

    ALL = 1
    """Back-pressure: nobody is read."""
    PUT_OFF = 2
    """What it has sent is worked off a little at a time."""
    RATE = 4
    """It has sent more than its rates allow."""
    WRAPPING = 8
    """Its wrapping works on what it has."""
    UNDECIDED = 16
    """It has closed its side, and it is not decided yet whether it is let in."""
