"""The core of the MQTT server: state of connections and sessions, without I/O, clock or logging."""
