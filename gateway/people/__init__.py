"""People who watch and operate the gateway: users and their roles, sessions and tokens, how they sign in, and the audit
trail of what they have done."""
