"""Composition root: the only place that names concrete classes.

Begin with `gateway.py`, a process from its start to its end, and `parts.py`, which makes its parts from the settings
and connects them. Besides these there are the files of a process (`files/`), what it reports about itself (`reports/`),
the queue managers that the settings name (`queue_managers/`), and what the admin port answers (`api/`).
"""
