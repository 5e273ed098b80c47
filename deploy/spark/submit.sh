#!/bin/sh
# One job on Kubernetes without an operator. MASTER, IMAGE and NAMESPACE may be set; arguments go to the job.
#   MASTER=k8s://https://kubernetes.default.svc deploy/spark/submit.sh /etc/mqgate/job/job.yaml
# On YARN or a standalone cluster: --master yarn (or spark://host:7077) and, where the image is not used,
#   --archives environment.tar.gz#environment --conf spark.pyspark.python=./environment/bin/python
set -eu
mounts="spark.kubernetes.%s.volumes.persistentVolumeClaim.lake"
driver=$(printf "$mounts" driver)
executor=$(printf "$mounts" executor)
exec spark-submit \
    --master "${MASTER:?set MASTER, for instance k8s://https://kubernetes.default.svc}" --deploy-mode cluster \
    --name mqgate-pipeline \
    --conf "spark.kubernetes.namespace=${NAMESPACE:-default}" \
    --conf "spark.kubernetes.container.image=${IMAGE:-mqgate-spark:latest}" \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
    --conf "$driver.options.claimName=mqgate-lake" --conf "$driver.mount.path=/lake" \
    --conf "$executor.options.claimName=mqgate-lake" --conf "$executor.mount.path=/lake" \
    --conf spark.executor.instances=2 --conf spark.dynamicAllocation.enabled=false \
    --conf spark.task.maxFailures=8 --conf spark.executor.memoryOverheadFactor=0.4 \
    local:///opt/mqgate/job.py "$@"
