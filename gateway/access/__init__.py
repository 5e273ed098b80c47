"""Access: who may connect and what a client may do, behind `ports.access`.

`gatekeeper` decides, by the settings (`policy`): by a certificate; by user and password, about which one method after
the other is asked (`logins`), such as password files (`passwords`) and a directory (`directory`); by a JSON Web Token
(`tokens`, whose keys are in `key_sets`, fetched by `web`); by SCRAM (`scram`); by access lists (`routing.acl`).
`client_ids` says which user may have which identifier. `attempts` delays wrong passwords and `guesses` limits them;
`checks` has what takes long done on threads. Knows CONNECT and reason codes of `mqtt`, and `ports`; nothing of
sessions, queues or sockets.
"""
