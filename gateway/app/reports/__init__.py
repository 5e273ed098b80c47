"""What a gateway reports about itself: metrics, log, history, problems, device events, the audit trail."""
