"""What the core needs from the outside: queue manager, clock, scheduler. Protocols and value types only."""
