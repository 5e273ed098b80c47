"""The administration API: one module for each group of endpoints, all of which are plain functions of a call."""
