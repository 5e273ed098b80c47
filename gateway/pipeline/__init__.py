"""The data pipeline: messages of queues become rows of tables, with Spark. The only importer of pyspark.

Its rooms, from the bottom: `journal/` reads an embedded queue manager's journal and keeps consumer groups in it;
`decode/` makes columns of messages; `land/` puts files into tables exactly once; `source/` is Spark's data source
`mqqueue`; `jobs/` runs jobs from YAML files with bronze, silver and gold tables; `drain/` fills a journal from IBM MQ.
`docs/explanation/pipeline.md` explains in which order they keep the promise of exactly once.

Nothing is imported here: modules that need pyspark or pyarrow are imported by the command that uses them, so that the
gateway, the command line and their tests run without the extra `spark`.
"""
