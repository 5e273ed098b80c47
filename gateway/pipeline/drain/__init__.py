"""Draining IBM MQ: queues are emptied into a journal, each message once, and Spark reads the journal.

Begin with `drainer.py`, which explains how a unit of work in doubt is resolved. `ibm_queue.py` makes the MQI calls;
`journal_server.py` serves the journal to readers while the drainer owns it.
"""
