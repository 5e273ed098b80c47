"""mqgate: a bridge between telemetry devices and IBM MQ."""
