"""IBM MQ through ibmmq or pymqi."""
