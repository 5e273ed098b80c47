"""Access: who may connect and what a client may do, behind `ports.access`.

`gatekeeper` decides, by the settings (`policy`): a certificate; user and password, asked of one method after the other
(`logins`): password files (`passwords`), a directory (`directory`); a JSON Web Token (`tokens`, whose keys are in
`key_sets`, asked for by `web`); SCRAM (`scram`); access lists (`routing.acl`). `client_ids` says which identifiers are
whose. `attempts` delays and `guesses` bounds wrong passwords, `checks` has what takes long done on threads.
Knows CONNECT and reason codes of `mqtt`, and `ports`; nothing of sessions, queues or sockets.
"""
