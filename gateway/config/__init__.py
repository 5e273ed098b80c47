"""The process settings."""
