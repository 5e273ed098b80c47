"""The only importer of Twisted."""
