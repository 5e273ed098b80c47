"""Publications to MQ messages and back: pure translation."""
