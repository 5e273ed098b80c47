"""The mapping language: YAML text to frozen rules, with located errors."""
