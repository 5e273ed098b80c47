#!/bin/sh
# Spark on Kubernetes starts this image with `driver` or `executor`; anything else is run as it is.
set -eu
classpath="$SPARK_HOME/jars/*"
case ${1:-} in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
executor)
    shift
    # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ... are one option each.
    number=0
    set --
    while value=$(printenv "SPARK_JAVA_OPT_$number"); do
        set -- "$@" "$value"
        number=$((number + 1))
    done
    exec java "$@" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" -cp "$classpath" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
