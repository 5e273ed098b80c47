"""Topics to subscriptions and rules."""
