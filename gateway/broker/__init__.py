"""The application without the reactor: intake, routing, units of work, acknowledgements."""
