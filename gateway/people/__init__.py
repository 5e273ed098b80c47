"""People who look at the gateway and operate it: users and their roles, sessions, tokens, how they sign in, and the
trail of what they have done."""
