"""Headers in front of a message's data: one module a structure; `header` any of them, `chain` one after another."""
