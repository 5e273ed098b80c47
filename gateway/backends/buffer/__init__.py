"""Store and forward: the gateway's state, and what IBM MQ cannot take now, in an embedded store that is drained in
order."""
