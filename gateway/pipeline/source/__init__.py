"""Spark's data source `mqqueue`: batch and streaming reads from queues, and writes to them.

Begin with `source.py`, which holds the classes that Spark calls, in the order in which it calls them. They reach queues
through a `QueueAccess`: a journal's files (`queue_access.py`), a gateway over HTTP (`http_access.py`), or IBM MQ by
browsing (`browse.py`). `tasks.py` is what runs in Spark's tasks.
"""
