"""The tables of a job: in a folder and on object storage, merged and expired, and what follows their manifest."""
