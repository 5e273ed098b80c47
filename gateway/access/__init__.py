"""Access: who may connect and what a client may do, behind `ports.access`.

`gatekeeper` decides, by the settings: a certificate, a password (`passwords`), a JSON Web Token (`tokens`), SCRAM
(`scram`), access lists (`routing.acl`). `attempts` delays and bounds guesses at passwords. Knows CONNECT and reason
codes of `mqtt`, and `ports`; nothing of sessions, queues or sockets.
"""
