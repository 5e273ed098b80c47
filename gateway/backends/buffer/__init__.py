"""Store and forward: the gateway's state and what IBM MQ cannot take now, in an embedded store; drained in order."""
