"""Composition root: the only place that names concrete classes."""
