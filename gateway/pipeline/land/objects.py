"""The door to object storage: S3, Google and Azure through `obstore`, with its errors as sentences of ours.

Credentials come from the environment, as the stores' own tools read them (AWS_ACCESS_KEY_ID, instance and pod
identities and so on); what is no secret comes from the job's `storage`. There is no rename here and no copy: an object
is put, once, or put under the condition that nothing has its name.
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from gateway.config.extras import how_to_install
from gateway.pipeline.errors import PipelineError, SparkMissing, StoreRefuses, StoreUnreachable
from gateway.pipeline.source.places import at_scheme, is_object_place

PROBES = "_manifest/probe"
IDENTITY = ("/latest/api/token", "/latest/meta-data/", "/computeMetadata/", "/metadata/identity/")
"""Where a client asks for the identity of its host, which is when it has found no credentials."""
EXPIRED = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
"""S3's codes for credentials that were good once. It answers 400, where it says 403 of others."""
ENDPOINT = re.compile(r"https?://[^\s/?#]+(/\S*)?")
ENDPOINT_NAMES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
SKEWED = "RequestTimeTooSkewed"
ELSEWHERE = "is the endpoint right (AWS_ENDPOINT_URL, or `storage.endpoint`), and the region (AWS_REGION)?"
DENIED = ("status code: 401", "status code: 403")
"""A listing has no error of its own for it."""
BUSY = ("status code: 503", "status code: 429")
PASSING = (
    *(
        (sign, "the store is busy: wait, or have longer triggers; `storage.patience` is how long it is asked")
        for sign in BUSY
    ),
    ("status code: 507", "the store has no room: make some"),
)
"""What a store that answers says of itself, and what to do."""
CREATE_TRIES = 3
"""A conditional put is tried so often, with the library's own repetitions each time, until its outcome is unknown."""
PAUSE = 0.2

LONGEST_PAUSE = 5.0
UNTRUSTED = "InvalidCertificate("
PLAIN_PORT = "InvalidContentType"
"""What the libraries say beneath an error: neither gets better while one waits."""
NO_HOST = ("Name or service not known", "nodename nor servname", "No address associated")
"""This does, where the name is that of a container that starts."""

Found = TypeVar("Found")
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a job says about its object storage. No secrets."""

    endpoint: str = ""
    region: str = ""
    timeout: float = 30.0
    """Seconds for one request."""
    patience: float = 120.0
    """Seconds for a request with all its repetitions, at most; a store that is busy is asked for as long."""

    def as_text(self) -> str:
        """For an option of the data source."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> StoreSettings:
        """What `as_text` wrote."""
        return cls(**json.loads(text)) if text else cls()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object of a listing."""

    name: str
    """Relative to the warehouse."""
    size: int
    modified: datetime


class ObjectStore:
    """The objects below one address."""

    def __init__(self, url: str, settings: StoreSettings) -> None:
        try:
            from obstore import store
        except ImportError as error:
            raise SparkMissing(
                f"a warehouse on object storage needs the package obstore: {how_to_install('spark', 'lake')}"
            ) from error
        self.url = at_scheme(url).rstrip("/")
        self.settings = settings
        self._check_endpoint()
        del store
        self._store: Any = self._opened({"retry_timeout": timedelta(seconds=settings.patience)})

    def _opened(self, retries: Any) -> Any:
        from obstore import store

        options = {"client_options": self._client_options(), "retry_config": retries, **self._s3_options()}
        return self._asked(lambda: store.from_url(self.url, **options), "open")

    def _check_endpoint(self) -> None:
        """The library panics where an endpoint is none."""
        endpoint = endpoint_of(self.settings)
        empty = [name for name in ENDPOINT_NAMES if not os.environ.get(name, "-")]
        if self.url.startswith("s3://") and empty and not endpoint:
            raise StoreRefuses(f"{empty[0]} is there and empty: unset it, or write the address of a server")
        if self.url.startswith("s3://") and endpoint and not ENDPOINT.fullmatch(endpoint):
            raise StoreRefuses(
                f"the endpoint {endpoint!r} is no address of a server: write https://host:port, or http://host:port, "
                "as `storage.endpoint` or AWS_ENDPOINT_URL"
            )

    def _client_options(self) -> dict[str, Any]:
        plain = plain_http(self.settings)
        return {"timeout": f"{self.settings.timeout:g}s", "connect_timeout": "5s"} | (
            {"allow_http": True} if plain else {}
        )

    def _s3_options(self) -> dict[str, str]:
        if not self.url.startswith("s3://"):
            return {}
        given = {"endpoint": self.settings.endpoint, "region": self.settings.region}
        return {name: value for name, value in given.items() if value}

    # ---- writing

    def create(self, name: str, data: bytes) -> bool:
        """Put an object if nothing has its name; whether it was put by this call. False also when an earlier try of
        this very call has put it and its answer was lost: whoever must know reads the object back."""
        from obstore.exceptions import AlreadyExistsError

        until = time.monotonic() + self.settings.patience
        for tried in range(1, CREATE_TRIES + 1):
            try:
                self._asked(lambda: self._put(name, data, mode="create"), f"put {name}", passing=(AlreadyExistsError,))
            except AlreadyExistsError:
                return False
            except StoreUnreachable:
                if tried == CREATE_TRIES or time.monotonic() > until:
                    raise
                time.sleep(PAUSE)
            else:
                return True
        raise AssertionError("unreachable")

    def put(self, name: str, data: bytes) -> None:
        """Put a small object, whatever has its name."""
        self._asked(lambda: self._put(name, data), f"put {name}")

    def upload(self, name: str, file: Path) -> None:
        """Put a file, in parts where it is large. It is visible when all of it is there."""
        self._asked(lambda: self._put(name, file), f"put {name}")

    def _put(self, name: str, data: bytes | Path, **how: str) -> None:
        import obstore

        obstore.put(self._store, name, data, **how)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are gone already are no error."""
        import obstore

        listed = list(names)
        if listed:
            with suppress(FileNotFoundError):
                self._asked(lambda: obstore.delete(self._store, listed), "delete objects", passing=(FileNotFoundError,))

    # ---- reading

    def get(self, name: str) -> bytes | None:
        """The object's bytes; None when there is none."""
        import obstore

        try:
            return self._asked(
                lambda: bytes(obstore.get(self._store, name).bytes()), f"get {name}", passing=(FileNotFoundError,)
            )
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise self._missing_bucket() from error
            return None

    def download(self, name: str, target: Path) -> None:
        """Write the object to a file, piece by piece."""
        import obstore

        def fetch() -> None:
            with target.open("wb") as file:
                for piece in obstore.get(self._store, name).stream():
                    file.write(piece)

        try:
            self._asked(fetch, f"get {name}", passing=(FileNotFoundError,))
        except FileNotFoundError as error:
            raise PipelineError(
                f"{self.url}/{name} is not there, although the manifest names it: restore it from a backup"
            ) from error

    def reader(self, name: str, size: int | None = None) -> io.RawIOBase:
        """A file to seek and read in, for what lies at the end of a Parquet file. Its size is asked unless given."""
        import obstore

        if size is None:
            size = self._asked(lambda: int(obstore.head(self._store, name)["size"]), f"look at {name}")
        return RangeFile(
            size,
            lambda start, end: self._asked(
                lambda: bytes(obstore.get_range(self._store, name, start=start, end=end)), f"read {name}"
            ),
        )

    def names(self, prefix: str, after: str = "") -> Iterator[StoredObject]:
        """The objects below a prefix, in the order of their names, those greater than `after`."""
        import obstore

        def pages() -> list[Any]:
            return [
                one for page in obstore.list(self._store, prefix, offset=after or None, chunk_size=1000) for one in page
            ]

        for one in sorted(self._asked(pages, f"list {prefix}"), key=lambda each: str(each["path"])):
            if one["path"] > after:  # Azure's listings begin with that very name, its emulator's with the first
                yield StoredObject(one["path"], one["size"], one["last_modified"])

    def has(self, prefix: str) -> bool:
        """Whether there is any object below a prefix."""
        import obstore

        return self._asked(
            lambda: any(len(page) for page in obstore.list(self._store, prefix, chunk_size=1)), f"list {prefix}"
        )

    # ---- what the store can do

    def check(self, tell: Tell | None = None, *, once: bool = False) -> None:
        """StoreRefuses unless the second conditional put of one name is refused, which a commit relies on. With `tell`
        a store that may answer later is waited for, and this is told why; so is the identity of the host, which a pod
        may get after it has begun, unless this is for a run that ends by itself (`once`)."""
        self._reach(tell, (UNTRUSTED, PLAIN_PORT, *(IDENTITY if once or tell is None else ())))
        name = f"{PROBES}/{secrets.token_hex(8)}"
        try:
            created = self.create(name, b"first")
            again = self.create(name, b"second")
            kept = self.get(name)
        finally:
            with suppress(PipelineError):  # what went wrong before is what counts
                self.delete([name])
        if not created or again or kept != b"first":
            raise StoreRefuses(
                f"{self.url} does not honour conditional puts (If-None-Match: *): a second put of the same name was "
                "taken. Two drivers could both land a batch there. Use a store that does (Amazon S3, Google, Azure, "
                "MinIO, Ceph from 19), or a shared folder"
            )

    def _reach(self, tell: Tell | None, hopeless: tuple[str, ...]) -> None:
        """Ask the store, without the library's own repetitions: what is there until somebody does something is refused
        at once, and whoever is to be told knows what is waited for."""
        import obstore

        once = self._opened({"max_retries": 0, "retry_timeout": timedelta(seconds=self.settings.timeout)})
        until, pause, told = time.monotonic() + self.settings.patience, PAUSE, False
        while True:
            try:
                obstore.list(once, PROBES, chunk_size=1).collect()
                return
            except Exception as error:
                found = self._error_of(error, f"list {PROBES}")
                if any(sign in str(error) for sign in hopeless):
                    raise StoreRefuses(str(found)) from error
                if tell is None or isinstance(found, StoreRefuses) or time.monotonic() > until:
                    raise found from error
                if not told:
                    tell(f"{found} (asked again for {self.settings.patience:g} s)")
                told = True
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _asked(self, call: Callable[[], Found], what: str, passing: tuple[type[Exception], ...] = ()) -> Found:
        """The answer of a call, or an error that says in one sentence what to do."""
        from obstore import exceptions as wrong

        try:
            return self._while_busy(call)
        except passing:
            raise
        except (wrong.BaseError, OSError, ValueError) as error:
            raise self._error_of(error, what) from error

    def _error_of(self, error: Exception, what: str) -> PipelineError:
        from obstore import exceptions as wrong

        said = str(error)
        refused, cannot = f"{self.url} refuses to {what}: {summary(error)}", f"{self.url}: cannot {what}"
        denied = isinstance(error, (wrong.PermissionDeniedError, wrong.UnauthenticatedError))
        if denied or any(sign in said for sign in DENIED):
            if SKEWED in said:
                return StoreUnreachable(f"{refused}: set the clock of this machine")
            return StoreRefuses(
                f"{refused}: check the credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "the identity of this host) and what they may do"
            )
        if "NoSuchBucket" in said:
            return self._missing_bucket()
        if isinstance(error, FileNotFoundError):
            return StoreUnreachable(f"{cannot}: {summary(error)}")
        if any(part in said for part in IDENTITY):
            return StoreUnreachable(
                f"{cannot}: there are no credentials in the environment (for S3 AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY), and the identity of this host cannot be had"
            )
        if any(f"<Code>{code}</Code>" in said for code in EXPIRED):
            return StoreRefuses(
                f"{refused}: the credentials in the environment have expired, or AWS_SESSION_TOKEN is not theirs: set "
                "new ones and start this again"
            )
        return StoreUnreachable(f"{cannot}: {self._advice(error)}")

    def _advice(self, error: Exception) -> str:
        said, where = str(error), endpoint_of(self.settings) or self.url
        if PLAIN_PORT in said:
            return f"no TLS is spoken at {where}: write http:// if that is meant (AWS_ENDPOINT_URL, `storage.endpoint`)"
        if UNTRUSTED in said:
            why = "has expired" if "Expired" in said else "is not trusted here, or has another name"
            return f"the certificate of {where} {why}: SSL_CERT_FILE names the authorities that are trusted"
        if any(sign in said for sign in NO_HOST):
            return f"there is no host of the name in {where}: correct it (AWS_ENDPOINT_URL, `storage.endpoint`)"
        return f"{summary(error)}: {next((advice for sign, advice in PASSING if sign in said), ELSEWHERE)}"

    def _while_busy(self, call: Callable[[], Found]) -> Found:
        """The answer, once the store is not busy. The library repeats a request ten times, which takes two seconds."""
        until = time.monotonic() + self.settings.patience
        while True:
            try:
                return call()
            except Exception as error:
                if time.monotonic() > until or not any(sign in str(error) for sign in BUSY):
                    raise
            time.sleep(PAUSE)

    def _missing_bucket(self) -> StoreRefuses:
        return StoreRefuses(f"{self.url}: there is no such bucket: make it, or correct `warehouse`")


class RangeFile(io.RawIOBase):
    """An object as a file that is read here and there, a request for each read."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        self.size = size
        self.fetch = fetch
        self.at = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read from anywhere."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def tell(self) -> int:
        """The place."""
        return self.at

    def read(self, count: int = -1) -> bytes:
        """So many bytes, or all that are left."""
        end = self.size if count is None or count < 0 else min(self.size, self.at + count)
        found = self.fetch(self.at, end) if end > self.at else b""
        self.at += len(found)
        return found

    def readall(self) -> bytes:
        """All that are left."""
        return self.read()


def summary(error: Exception) -> str:
    """The first line of a library's error, without what it prints for its developers."""
    text = str(error).partition("\n\nDebug source")[0]
    code = text.partition("<Code>")[2].partition("</Code>")[0]
    line = text.splitlines()[0].partition(": <?xml")[0] if text else type(error).__name__
    return f"{line} ({code})" if code else line


def plain_http(settings: StoreSettings) -> bool:
    """Whether the endpoint is without TLS, which the library wants to be told."""
    return endpoint_of(settings).startswith("http://")


def endpoint_of(settings: StoreSettings) -> str:
    """The endpoint of an S3 server that is not Amazon's; empty for Amazon's."""
    named = (os.environ.get(name, "") for name in ENDPOINT_NAMES)
    return settings.endpoint or next(filter(None, named), "")


def open_store(place: str, settings: StoreSettings) -> ObjectStore:
    """The objects at a place: on object storage, or in a folder."""
    if is_object_place(place):
        return ObjectStore(place, settings)
    from gateway.pipeline.land.folder_store import FolderStore

    return FolderStore(place, settings)
