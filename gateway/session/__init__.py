"""The MQTT server core without I/O, clock or logging."""
