"""The pure half of the embedded store: lanes, order, depth and match over messages that lie elsewhere. No input or
output.
"""
