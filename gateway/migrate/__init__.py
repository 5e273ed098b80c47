"""From other brokers' configuration to settings and mappings: readers from text to a plan, and one writer."""
