"""Queue managers as the settings name them: the one of the state, those of rules, and how they are looked at."""
