"""The tables of a job: on a folder and on objects, merged and expired, and what follows their manifest."""
