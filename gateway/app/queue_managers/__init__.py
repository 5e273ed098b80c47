"""The queue managers that the settings name: that of the state, those of rules, and how they are inspected."""
