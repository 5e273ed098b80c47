"""How pyiceberg reads and writes the metadata of tables: through the store of the warehouse, with its endpoint, its
credentials, its repetitions and its errors, rather than by a second library that would want them all again.

Rows are not read this way. Readers of the tables use whatever file system they have.
"""

from __future__ import annotations

import io
from dataclasses import replace
from functools import lru_cache

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from gateway.pipeline.errors import WrongOption
from gateway.pipeline.land.objects import ObjectStore, StoreSettings, endpoint_of, open_store

IMPLEMENTATION, PLACE, SETTINGS = "py-io-impl", "mqgate.place", "mqgate.storage"


def io_properties(store: ObjectStore) -> dict[str, str]:
    """The properties of a catalog whose files go through a store."""
    endpoint = endpoint_of(store.settings) if store.url.startswith("s3://") else store.settings.endpoint
    return {
        IMPLEMENTATION: f"{__name__}.{StoreIO.__name__}",
        PLACE: store.url.replace("file://", "folder://", 1),
        SETTINGS: replace(store.settings, endpoint=endpoint).as_text(),  # a store is kept by what it is opened with
    }


@lru_cache(maxsize=8)
def _store(place: str, settings: str) -> ObjectStore:
    return open_store(place, StoreSettings.from_text(settings))


class StoreIO(FileIO):
    """The files of one warehouse."""

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__(properties)
        self.store = _store(properties[PLACE], properties[SETTINGS])

    def new_input(self, location: str) -> StoreInput:
        """A file to read."""
        return StoreInput(location, self.store)

    def new_output(self, location: str) -> StoreOutput:
        """A file to write."""
        return StoreOutput(location, self.store)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        named = location if isinstance(location, str) else location.location
        self.store.delete([name_in(self.store, named)])


def name_in(store: ObjectStore, location: str) -> str:
    """The name below the warehouse."""
    name = location.removeprefix(f"{store.url}/")
    if name == location:
        raise WrongOption(
            f"the catalog's table lies at {location}, not in {store.url}: give the job a `catalog.namespace` of its own"
        )
    return name


class StoreInput(InputFile):
    """A file of metadata, read whole: they are small, and read from one end to the other."""

    def __init__(self, location: str, store: ObjectStore) -> None:
        super().__init__(location)
        self.store = store

    def _data(self) -> bytes:
        found = self.store.get(name_in(self.store, self.location))
        if found is None:
            raise FileNotFoundError(f"{self.location} is not there, although the catalog or a snapshot names it")
        return found

    def __len__(self) -> int:
        """Its bytes."""
        return len(self._data())

    def exists(self) -> bool:
        """Whether it is there."""
        return self.store.get(name_in(self.store, self.location)) is not None

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - pyiceberg's signature
        """Its bytes as a file."""
        return io.BytesIO(self._data())


class StoreOutput(OutputFile):
    """A file of metadata that is being written; it is put when it is closed."""

    def __init__(self, location: str, store: ObjectStore) -> None:
        super().__init__(location)
        self.store = store

    def __len__(self) -> int:
        """Its bytes, once it has been put."""
        return len(self.to_input_file())

    def exists(self) -> bool:
        """Whether it is there."""
        return self.to_input_file().exists()

    def to_input_file(self) -> StoreInput:
        """The same to read."""
        return StoreInput(self.location, self.store)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002 - names are never repeated
        """A buffer that is put when it is closed."""
        return Putting(self.store, name_in(self.store, self.location))


class Putting(io.BytesIO):
    """Bytes that become an object."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        super().__init__()
        self._store, self._name = store, name

    def close(self) -> None:
        """Put them."""
        if not self.closed:
            self._store.put(self._name, self.getvalue())
        super().close()

    def __exit__(self, *failed: object) -> None:
        """Put them, unless writing them failed."""
        if failed[0] is not None:
            super().close()
        self.close()
