"""Sockets, TLS, WebSocket and HTTP. The only room that imports Twisted."""
