"""The catalog of Iceberg tables: an SQL database or a REST server, through `pyiceberg`, and its errors as sentences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway.config.extras import how_to_install
from gateway.pipeline.errors import CatalogMissing, SparkMissing
from gateway.pipeline.land.objects import ObjectStore, summary

SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """What a job says about its catalog. No secrets."""

    type: str
    name: str
    uri: str
    namespace: str
    warehouse: str = ""


def has_password(uri: str) -> bool:
    """Whether an address has a password in it."""
    return "@" in uri and urlsplit(uri).password is not None


def beside(folder: Path, uri: str) -> str:
    """The address with the path of a SQLite file resolved beside the job's file."""
    path = uri.removeprefix(SQLITE)
    if path == uri or path.startswith("/") or not path:
        return uri
    return SQLITE + os.path.normpath(folder / path)


@contextmanager
def sentences(catalog: CatalogSettings) -> Iterator[None]:
    """Turn what a catalog answers into an error that says in one sentence what to do."""
    from pyiceberg import exceptions as wrong
    from sqlalchemy.exc import SQLAlchemyError

    address = catalog.uri or f"PYICEBERG_CATALOG__{catalog.name.upper()}__URI"
    try:
        yield
    except (wrong.UnauthorizedError, wrong.ForbiddenError, wrong.AuthorizationExpiredError, wrong.OAuthError) as error:
        raise CatalogMissing(
            f"the catalog at {address} refuses: {summary(error)}: set "
            f"PYICEBERG_CATALOG__{catalog.name.upper()}__CREDENTIAL or __TOKEN in the environment"
        ) from error
    except wrong.NotInstalledError as error:
        raise CatalogMissing(
            f"the catalog at {address} needs a package that is not installed ({error.__cause__ or error}): install it, "
            "for PostgreSQL by pip install 'pyiceberg[sql-postgres]'"
        ) from error
    except (SQLAlchemyError, OSError, wrong.RESTError, ValueError, ModuleNotFoundError) as error:
        cause = getattr(error, "orig", None) or error
        raise CatalogMissing(
            f"the catalog at {address} cannot be used: {summary(cause)}: start it or correct `catalog.uri` (sqlite:/// "
            "and the path of a file whose folder is there, an SQL address, or that of a REST catalog with `type: rest`)"
        ) from error


def open_catalog(catalog: CatalogSettings, store: ObjectStore) -> Any:
    """The catalog, with the namespace of the tables in it."""
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NamespaceAlreadyExistsError

        from gateway.pipeline.land.iceberg_io import io_properties
    except ImportError as error:
        raise SparkMissing(
            f"format: iceberg needs the package pyiceberg: {how_to_install('spark', 'lake', 'iceberg')}"
        ) from error
    given = {"type": catalog.type, "uri": catalog.uri, "warehouse": catalog.warehouse or store.url}
    with sentences(catalog):
        opened = load_catalog(catalog.name, **io_properties(store), **{k: v for k, v in given.items() if v})
        with suppress(NamespaceAlreadyExistsError):
            opened.create_namespace(catalog.namespace)
    return opened
