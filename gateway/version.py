"""The version of mqgate."""

VERSION = "0.1.0"
