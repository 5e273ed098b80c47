"""An embedded queue manager's journal as the pipeline uses it: read in any process, written by its owner alone.

Reading: `segments.py` maps the files, `lookup.py` says which messages lie where, `pieces.py` cuts a batch into parts
and `chunks.py` reads their columns. Owning: `owner.py` keeps cursors and leases of consumer groups (`groups.py`) as
state records, purges what all groups have landed, and puts messages (`puts.py`); `service.py` offers both over HTTP,
in a gateway or a drainer. Begin with `lookup.py` and `groups.py`.
"""
