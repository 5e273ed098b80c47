"""Headers in front of a message's data: one module for each structure, `header` for any of them, `chain` for several in
a row."""
