"""Queue managers behind the ports."""
