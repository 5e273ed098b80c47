"""Queue managers beside that of the state, to which messages are put directly."""
