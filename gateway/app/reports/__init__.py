"""What a gateway says of itself: metrics, log, history, problems, device events, the audit trail."""
