"""Spans of the gateway, joined when the settings name a collector: their exporter is optional."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker.engine import Engine
from gateway.config.model import Settings

if TYPE_CHECKING:
    from gateway.observe.tracing import Spans


def open_spans(settings: Settings, engine: Engine) -> Spans | None:
    """ConfigurationError where the exporter is not installed."""
    tracing = settings.tracing
    if tracing.endpoint is None:
        return None
    from gateway.observe.tracing import Spans  # opentelemetry is optional

    spans = Spans(tracing.endpoint, tracing.share, tracing.service, engine.queue_manager.name)
    engine.on_hop = spans.begin
    return spans
