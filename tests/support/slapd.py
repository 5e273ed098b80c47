"""OpenLDAP's server on loopback, with a few users and groups; skipped where it is not installed."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest
from free_ports import free_port

BASE = "dc=plant,dc=example"
SERVICE, SERVICE_PASSWORD = f"cn=reader,{BASE}", "read-only"
ANSWERING = f"ou=answering,{BASE}"
"""Below it are names to which the server answers as others do: `locked`, `forbidden`, `busy`."""
USERS = {"alice": "wonder", "bob": "builder", "carol": "sings", "dave": "Pässwort ² und ½ "}
GROUPS = {"operators": ["alice"], "devices": ["alice", "bob"]}

_CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
moduleload retcode
pidfile {folder}/pid
{more}
database mdb
suffix "{base}"
rootdn "cn=admin,{base}"
rootpw admin
directory {folder}/data
maxsize 10485760
overlay memberof
overlay retcode
retcode-parent "{answering}"
retcode-item "cn=locked" 19 op=bind
retcode-item "cn=forbidden" 50 op=bind
retcode-item "cn=busy" 51 op=bind
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{service}" read by * none
"""


def programs() -> tuple[str, str]:
    """slapd and slapadd, or the reason why there are none."""
    where = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
    found = [shutil.which(name, path=where) for name in ("slapd", "slapadd")]
    if None in found or not Path("/etc/ldap/schema/core.schema").exists():
        pytest.skip("slapd is not installed (Debian: apt-get install slapd)")
    return str(found[0]), str(found[1])


def entries() -> str:
    """What is in it."""
    made = [f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: plant\no: plant\n"]
    made += [f"dn: ou={unit},{BASE}\nobjectClass: organizationalUnit\nou: {unit}\n" for unit in ("people", "groups")]
    made.append(
        f"dn: {SERVICE}\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\ncn: reader\n"
        f"userPassword: {SERVICE_PASSWORD}\n"
    )
    for user, password in USERS.items():
        made.append(
            f"dn: uid={user},ou=people,{BASE}\nobjectClass: inetOrgPerson\nuid: {user}\ncn: {user}\nsn: {user}\n"
            f"userPassword:: {base64.b64encode(password.encode()).decode()}\n"
            + "".join(f"memberOf: cn={one},ou=groups,{BASE}\n" for one, members in GROUPS.items() if user in members)
        )
    for group, members in GROUPS.items():
        listed = "".join(f"member: uid={one},ou=people,{BASE}\n" for one in members)
        made.append(f"dn: cn={group},ou=groups,{BASE}\nobjectClass: groupOfNames\ncn: {group}\n{listed}")
    return "\n".join(made)


class Slapd:
    """One server. `stop` and `start` are an outage."""

    def __init__(
        self, folder: Path, tls: tuple[Path, Path] | None = None, port: int | None = None, more: str = ""
    ) -> None:  # fmt: skip
        """`more`: lines of its configuration."""
        self._slapd, slapadd = programs()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data").mkdir()
        more += "" if tls is None else f"\nTLSCertificateFile {tls[0]}\nTLSCertificateKeyFile {tls[1]}"
        self._file = folder / "slapd.conf"
        self._file.write_text(
            _CONFIGURATION.format(folder=folder, base=BASE, answering=ANSWERING, service=SERVICE, more=more)
        )
        (folder / "entries.ldif").write_text(entries())
        command = [slapadd, "-f", str(self._file), "-l", str(folder / "entries.ldif")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        self.port, self.secure_port = port or free_port(), free_port()
        self.url, self.secure_url = f"ldap://127.0.0.1:{self.port}", f"ldaps://127.0.0.1:{self.secure_port}"
        self._urls = f"{self.url}/" + (f" {self.secure_url}/" if tls else "")
        self._log = folder / "slapd.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [self._slapd, "-f", str(self._file), "-h", self._urls, "-d", "256"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while True:
            assert self._process.poll() is None, self.log
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
            except OSError:
                assert time.monotonic() < end, self.log
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
