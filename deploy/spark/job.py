"""What spark-submit starts: spark-submit ... job.py JOB.yaml [--once]. The same as `mqgate pipeline run`."""

from gateway.pipeline.commands import run

if __name__ == "__main__":
    run()
