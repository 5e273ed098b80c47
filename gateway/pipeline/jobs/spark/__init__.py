"""Spark and its Java: found, started, listened to, and ended."""
