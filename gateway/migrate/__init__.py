"""Makes settings and mappings from the configuration of other brokers: readers from text to a plan, and one writer."""
