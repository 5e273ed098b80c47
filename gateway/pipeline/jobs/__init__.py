"""Jobs: a YAML file (`job.py`) names a queue and tables, and one streaming query fills them.

Begin with `run.py`, which starts the query and starts it again after failures, and `micro_batch.py`, which takes each
micro-batch through bronze, silver (`silver.py`) and gold (`gold.py`). Beside them: what a user sees of a job
(`progress.py`, `status.py`, `metrics.py`, `report.py`), where its rows land and how the tables are maintained
(`tables/`), and Spark with its Java (`spark/`).
"""
