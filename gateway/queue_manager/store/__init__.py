"""The pure half of the embedded store: lanes, order, depth and matching of messages that lie elsewhere. No input or
output."""
