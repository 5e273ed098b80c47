"""Files of a process: where they are, what is in them, and what a change to them means."""
