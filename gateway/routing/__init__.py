"""From topics to rules and subscribers, and the access lists."""
