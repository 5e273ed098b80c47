"""WebSphere MQ structures to bytes and back, in pure Python."""
