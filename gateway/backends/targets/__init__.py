"""Queue managers other than that of the state, to which messages are put directly."""
