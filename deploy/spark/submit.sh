#!/bin/sh
# One job on Kubernetes without an operator. The job's file lies on the claim, with its tables; arguments go to the job:
#   MASTER=k8s://https://kubernetes.default.svc deploy/spark/submit.sh /lake/jobs/telemetry.yaml
# May be set: IMAGE, NAMESPACE, CLAIM (shared by driver and executors), TOKEN_SECRET (the gateway's admin token, key `token`,
# mounted at /etc/mqgate/token; that of the chart's release mqgate otherwise), EXECUTORS, SERVICE_ACCOUNT; for a warehouse on object storage STORAGE_SECRET (with the keys
# AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; pods with an identity need none), AWS_REGION and AWS_ENDPOINT_URL.
# On YARN or a standalone cluster: --master yarn (or spark://host:7077) and, where the image is not used,
#   --archives environment.tar.gz#environment --conf spark.pyspark.python=./environment/bin/python
set -eu
claim=${CLAIM:-mqgate-lake}
token=${TOKEN_SECRET:-mqgate-credentials}
driver=spark.kubernetes.driver
executor=spark.kubernetes.executor
set -- local:///opt/mqgate/job.py "$@"
for name in AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; do
    [ -z "${STORAGE_SECRET:-}" ] ||
        set -- --conf "$driver.secretKeyRef.$name=$STORAGE_SECRET:$name" --conf "$executor.secretKeyRef.$name=$STORAGE_SECRET:$name" "$@"
done
for name in AWS_REGION AWS_ENDPOINT_URL; do
    value=$(printenv "$name" || true)
    [ -z "$value" ] || set -- --conf "spark.kubernetes.driverEnv.$name=$value" --conf "spark.executorEnv.$name=$value" "$@"
done
exec spark-submit \
    --master "${MASTER:?set MASTER, for instance k8s://https://kubernetes.default.svc}" --deploy-mode cluster \
    --name mqgate-pipeline \
    --conf "spark.kubernetes.namespace=${NAMESPACE:-default}" \
    --conf "spark.kubernetes.container.image=${IMAGE:-mqgate-spark:latest}" \
    --conf "spark.kubernetes.authenticate.driver.serviceAccountName=${SERVICE_ACCOUNT:-spark}" \
    --conf "$driver.volumes.persistentVolumeClaim.lake.options.claimName=$claim" \
    --conf "$driver.volumes.persistentVolumeClaim.lake.mount.path=/lake" \
    --conf "$executor.volumes.persistentVolumeClaim.lake.options.claimName=$claim" \
    --conf "$executor.volumes.persistentVolumeClaim.lake.mount.path=/lake" \
    --conf "$driver.secrets.$token=/etc/mqgate/token" \
    --conf "$executor.secrets.$token=/etc/mqgate/token" \
    --conf "spark.executor.instances=${EXECUTORS:-2}" --conf spark.dynamicAllocation.enabled=false \
    --conf spark.task.maxFailures=8 --conf spark.executor.memoryOverheadFactor=0.4 "$@"
