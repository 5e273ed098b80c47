"""The data pipeline on Spark; the only importer of pyspark."""
