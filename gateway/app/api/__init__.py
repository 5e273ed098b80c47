"""The administration API: one module for each group of endpoints, all of them plain functions of a call."""
