"""The software bill of materials: what the shipped wheels are, as CycloneDX 1.5 in JSON."""

from __future__ import annotations

import hashlib
import json
import re
import time
import tomllib
import uuid
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

NAME = "mqgate.cdx.json"


def extensions(tree: Path) -> list[str]:
    """The compiled extensions by module name."""
    setuptools = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    return [one["name"] for one in setuptools["ext-modules"]]


def write(tree: Path, output: Path, epoch: int) -> Path:
    """The SBOM of the wheels in `output` and `output/wheels`."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    path = output / NAME
    wheels = sorted(output.glob("wheels/*.whl"))
    own = sorted(output.glob("mqgate-*.whl"))
    document = bill(project["version"], [component(one) for one in wheels], [digest(one) for one in own], epoch)
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def bill(version: str, components: list[dict[str, Any]], hashes: list[str], epoch: int) -> dict[str, Any]:
    """The document. Its serial number follows from what is in it: the same release has the same one."""
    unique = {one["bom-ref"]: one for one in components}
    for one in components:  # the same version for several Pythons: a hash for each file
        have = unique[one["bom-ref"]]["hashes"]
        have += [each for each in one["hashes"] if each not in have]
    root = f"pkg:pypi/mqgate@{version}"
    seed = json.dumps([version, sorted(hashes), sorted(unique)])
    names = {normal(one["name"]): ref for ref, one in unique.items()}
    needs = {ref: one.pop("needs") for ref, one in unique.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, seed)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "mqgate",
                "version": version,
                "purl": root,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": one} for one in hashes],
            },
        },
        "components": [unique[ref] for ref in sorted(unique)],
        "dependencies": [
            {"ref": root, "dependsOn": sorted(unique)},
            *(
                {"ref": ref, "dependsOn": sorted({names[one] for one in needs[ref] if one in names})}
                for ref in sorted(unique)
            ),
        ],
    }


def component(wheel: Path) -> dict[str, Any]:
    """One wheel: name, version, hash, licence and what it needs, from its own metadata."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode("utf-8"))
    title, version = metadata["Name"], metadata["Version"]
    reference = f"pkg:pypi/{normal(title)}@{version}"
    needs = [normal(re.split(r"[^\w.-]", one, maxsplit=1)[0]) for one in metadata.get_all("Requires-Dist") or []]
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference,
        "name": title,
        "version": version,
        "purl": reference,
        "hashes": [{"alg": "SHA-256", "content": digest(wheel)}],
        "needs": needs,
    }
    licence = metadata["License-Expression"] or metadata["License"]
    if metadata["License-Expression"]:
        found["licenses"] = [{"expression": licence}]
    elif licence and len(licence) < 80:
        found["licenses"] = [{"license": {"name": licence}}]
    else:
        named = [
            one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier") or [] if one.startswith("License ::")
        ]
        if named:
            found["licenses"] = [{"license": {"name": one}} for one in named]
    return found


def digest(path: Path) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
