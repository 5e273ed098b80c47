"""The reasons for which a socket is not read."""

from __future__ import annotations

from enum import IntFlag


class Stop(IntFlag):
    """Why nothing is read from a socket. When one reason ends, the others stay."""

    ALL = 1
    """Back-pressure: nobody is read from."""
    PUT_OFF = 2
    """What it has sent is processed a little at a time."""
    RATE = 4
    """It has sent more than its rates allow."""
    WRAPPING = 8
    """Its wrapping is processing what it has."""
    UNDECIDED = 16
    """It has closed its side before it was decided whether it is let in."""
