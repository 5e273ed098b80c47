"""The process settings."""

from gateway.config.load import display, load_acl, load_settings
from gateway.config.model import Settings

__all__ = ["Settings", "display", "load_acl", "load_settings"]
