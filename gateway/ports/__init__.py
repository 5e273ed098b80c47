"""What the core needs from outside: queue manager, clock, scheduler. Protocols and value types only."""
