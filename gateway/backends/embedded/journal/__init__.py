"""The journal: the only opener of the store's files."""
