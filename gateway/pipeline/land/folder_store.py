"""A folder whose files are objects: put whole, never changed, and put on condition that nothing has their name.

Tables of Iceberg on a file system land through it as they do on object storage, so that there is one way to commit.
What has been put survives a power loss: the contents are synchronised before the file has its name, then the name.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gateway.pipeline.errors import PipelineError, StoreRefuses
from gateway.pipeline.land.durable import make_folder, sync_file
from gateway.pipeline.land.objects import ObjectStore, StoredObject, StoreSettings, Tell
from gateway.pipeline.source.places import FOLDER

ADDRESS = "file://"
UNFINISHED = ".part-"
"""Names of files that are being written begin with it; listings leave them out."""
PIECE = 8 << 20


class FolderStore(ObjectStore):
    """The files below one folder, with the calls of `ObjectStore`."""

    def __init__(self, url: str, settings: StoreSettings) -> None:
        self.folder = Path(url.removeprefix(FOLDER).removeprefix(ADDRESS))
        self.url = f"{ADDRESS}{self.folder}"
        self.settings = settings

    def _reach(self, tell: Tell | None, hopeless: tuple[str, ...]) -> None:
        """It is here."""

    # ---- writing

    def create(self, name: str, data: bytes) -> bool:
        """Put a file if nothing has its name; whether it was put by this call. A hard link does not replace a file."""
        beside = self._written(name, [data])
        try:
            os.link(beside, self.folder / name)
        except FileExistsError:
            return False
        finally:
            beside.unlink()
        sync_file((self.folder / name).parent)
        return True

    def put(self, name: str, data: bytes) -> None:
        """Put a small file, whatever has its name."""
        self._renamed(self._written(name, [data]), name)

    def upload(self, name: str, file: Path) -> None:
        """Put a copy of a file. It is visible when all of it is there."""
        with file.open("rb") as source:
            self._renamed(self._written(name, iter(lambda: source.read(PIECE), b"")), name)

    def _written(self, name: str, pieces: Iterable[bytes]) -> Path:
        """A file with these bytes beside the name that it will have, synchronised."""
        folder = (self.folder / name).parent
        try:
            make_folder(folder)
            beside = folder / f"{UNFINISHED}{secrets.token_hex(8)}"
            with beside.open("xb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreRefuses(
                f"{folder} cannot be written: {error.strerror}: give this user a folder with room that driver and "
                "executors share"
            ) from error
        return beside

    def _renamed(self, beside: Path, name: str) -> None:
        beside.rename(self.folder / name)
        sync_file((self.folder / name).parent)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are gone already are no error."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    # ---- reading

    def get(self, name: str) -> bytes | None:
        """The file's bytes; None when there is none."""
        try:
            return (self.folder / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def download(self, name: str, target: Path) -> None:
        """Have the same bytes under another name."""
        target.unlink(missing_ok=True)
        self._there(name)
        target.symlink_to((self.folder / name).absolute())

    def reader(self, name: str, size: int | None = None) -> io.RawIOBase:
        """The file itself."""
        del size
        self._there(name)
        return io.FileIO(self.folder / name)

    def _there(self, name: str) -> None:
        if not (self.folder / name).exists():
            raise PipelineError(
                f"{self.folder / name} is not there, although the manifest names it: restore it from a backup"
            )

    def names(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """The files below a folder, in the order of their names, those greater than `after`."""
        found = {str(path.relative_to(self.folder)): path for path in (self.folder / prefix).rglob("*")}
        for name in sorted(found):
            if name <= after or found[name].name.startswith(UNFINISHED):
                continue
            with suppress(FileNotFoundError):  # removed meanwhile
                about = found[name].stat()
                if not found[name].is_dir():
                    yield StoredObject(name, about.st_size, datetime.fromtimestamp(about.st_mtime, UTC))

    def has(self, prefix: str) -> bool:
        """Whether there is any file below a folder."""
        return next(self.names(prefix), None) is not None
