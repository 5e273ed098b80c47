"""Where tables may lie: a folder on a shared file system, or an address of object storage. Pure."""

from __future__ import annotations

import re

from gateway.config.units import Wrong

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/+")
SCHEMES = ("s3", "gs", "abfss")
"""Object storage, by the names that most programs use."""
FOLDER = "folder://"
"""The prefix of a folder whose files are treated as objects: a warehouse of Iceberg tables on a file system."""
OF_HADOOP = ("hdfs", "webhdfs", "swebhdfs", "viewfs")
OTHER_NAMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
"""Other names that Hadoop and others have for them."""


def at_scheme(place: str) -> str:
    """The address with the scheme as it is named here: s3a:// becomes s3://."""
    found = SCHEME.match(place)
    if found is None:
        return place
    scheme = found[1].lower()
    return f"{OTHER_NAMES.get(scheme, scheme)}://{place[found.end() :]}"


def is_object_place(place: str) -> bool:
    """Whether a place is an address of object storage."""
    found = SCHEME.match(at_scheme(place))
    return found is not None and found[1] in SCHEMES


def is_staging_object_place(place: str) -> bool:
    """Whether tasks put objects there: on object storage, or in a folder of objects."""
    return is_object_place(place) or place.startswith(FOLDER)


def staging_place(given: str) -> str:
    """As `warehouse_place`, but a folder of objects stays one."""
    return given if not given or given.startswith(f"{FOLDER}/") else warehouse_place(given)


def warehouse_place(given: str) -> str:
    """A folder or an address of object storage. Raises Wrong for anything else."""
    if not given.strip():
        raise Wrong("the warehouse has no name", "write a folder, such as ./lake, or s3://bucket/prefix")
    found = SCHEME.match(given)
    if found is not None and found[1].lower() in OF_HADOOP:
        raise Wrong(
            f"{given!r}: a warehouse on HDFS is refused, because what a commit relies on there could not be tried",
            "mount it on all hosts (Hadoop's NFS gateway, or FUSE) and give the folder's path with format parquet or "
            "delta; or use its S3 gateway (s3://) where it has one; or land elsewhere and copy the committed files, "
            "which `mqgate pipeline files` names",
        )
    if not is_object_place(given):
        return plain_folder(given)
    place = at_scheme(given).rstrip("/")
    if not place.partition("://")[2]:
        raise Wrong(f"{given!r} names no bucket", "write s3://bucket/prefix")
    return place


def plain_folder(given: str) -> str:
    """The path of a folder, which may be given as file:///path. Raises Wrong for other URI schemes."""
    found = SCHEME.match(given)
    if found is None:
        return given
    if found[1].lower() == "file" and (given[5:8] == "///" or given[5:7] != "//"):
        return "/" + given[found.end() :]
    raise Wrong(
        f"{given!r} is not a folder, and a file system that {found[1]}: names is not one of those that a warehouse may "
        f"lie on",
        "give a path on a file system that all processes share (local, NFS, CephFS, a mounted volume); a warehouse may "
        f"also be on object storage ({', '.join(f'{one}://' for one in SCHEMES)}); or write the rows of "
        'format("mqqueue") with one of Spark\'s own sinks',
    )
