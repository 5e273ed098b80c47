"""Composition root: the only place that names concrete classes.

Begin with `gateway.py`, a process from its start to its end, and `parts.py`, which makes its parts from the settings
and joins them. Beside them: the files of a process (`files/`), what it says of itself (`reports/`), queue managers as
the settings name them (`queue_managers/`), and what the admin port answers (`api/`).
"""
