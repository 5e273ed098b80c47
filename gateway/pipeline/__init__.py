"""The data pipeline on Spark; the only importer of pyspark and pyarrow.

Nothing is imported here: modules that need pyspark or pyarrow are imported by the command that uses them, so that the
gateway, the command line and their tests run without the extra `spark`.
"""
