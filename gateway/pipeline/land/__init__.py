"""Exactly-once tables on a folder: a micro-batch is staged, synchronised, renamed, and recorded in the manifest.

Begin with `landing.py`. `manifest.py` keeps the records and `ranges.py` the message numbers they cover; `delta.py`
writes a Delta log for the same files. Plain files: nothing here needs Spark.
"""
