"""On the path of Spark's Python processes: pyspark is the installed one, not that of Spark's archive, which each
process would compile anew; and a daemon has imported what its forks need. Each would spend a second of processor time
on that."""

import sys
from importlib import import_module

_PRELOADED = ("pandas", "pyarrow.parquet", "pyspark.worker", "gateway.pipeline.source.source")

if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2].startswith("pyspark."):
    sys.path[:] = [place for place in sys.path if not place.endswith("pyspark.zip")]
    for module in (*_PRELOADED, *sys.orig_argv[3:]) if sys.orig_argv[2] == "pyspark.daemon" else ():
        import_module(module)
