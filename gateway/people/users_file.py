"""The file of users: read at start and on reload, and replaced as a whole by each change."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from gateway.errors import ConfigurationError, Finding
from gateway.people.users import Unfit, Users, as_document, of_document


class UsersFile:
    """One file of users, which may not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._changing = threading.Lock()

    def read(self) -> Users:
        """The users in the file; none if it does not exist. Raises ConfigurationError."""
        try:
            return of_document(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            fix = "correct it, or remove it and add the users again with `mqgate admin user add`"
            raise ConfigurationError([Finding(str(self.path), 1, 1, f"no file of users: {error}", fix)]) from error

    def change(self, change: Callable[[Users], Users]) -> Users:
        """Read the file again, change the users in it, and replace it; returns them. Raises Unfit. Blocks, so it is
        called on threads."""
        with self._changing:
            try:
                users = change(self.read())
                self._write(json.dumps(as_document(users), indent=1) + "\n")
            except ConfigurationError as error:
                raise Unfit(str(error), 409) from error
            except OSError as error:
                raise Unfit(
                    f"{self.path} cannot be written: {error.strerror}; change it where it comes from", 409
                ) from error
            return users

    def _write(self, text: str) -> None:
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o600)
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
