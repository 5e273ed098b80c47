"""A document of configuration as a model: everything that is wrong with it at once, and what is right of it."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gateway.config.findings import Placed, left_out, placed
from gateway.config.source import Document, Path
from gateway.errors import Finding

M = TypeVar("M", bound=BaseModel)


def examine(document: Document, model: type[M]) -> tuple[M | None, list[Finding]]:
    """The value of a document as a model, and everything that is wrong with it, in the order of the text. Wrong values
    are left out of it; those that only do not go together are in it. None: nothing can be made of it. Whether values go
    together is known when each is right by itself: the others are looked at again, until there is nothing that was not
    found before."""
    found, wrong, known = list[Finding](), set[Path](), set[str]()
    right, these = _validated(document, model, wrong, known)
    while these:
        found += [one.finding for one in these if not _follows(one, wrong)]
        before = len(wrong) + len(known)
        wrong |= {one.path for one in these if one.contradiction is None}
        known |= {str(one.contradiction) for one in these if one.contradiction is not None}
        if len(wrong) + len(known) == before:
            break
        right, these = _validated(document, model, wrong, known)
    found.sort(key=lambda finding: (finding.line, finding.column))
    return right, found


def _validated(document: Document, model: type[M], wrong: set[Path], known: set[str]) -> tuple[M | None, list[Placed]]:
    """The value without what is wrong, but for contradictions that are known, or what is wrong besides."""
    whole, document.value = document.value, left_out(document.value, wrong) if wrong else document.value
    try:
        return model.model_validate(document.value, context=lambda one: str(one) in known), []
    except ValidationError as error:
        return None, placed(error, document, model)
    finally:
        document.value = whole


def _follows(placed: Placed, wrong: set[Path]) -> bool:
    """Whether a contradiction may only be there because a wrong value was left out: one beside it, or one that it was
    concluded from."""
    if any(path[:1] == read[:1] for path in wrong for read in placed.concluded):
        return True
    if not placed.path:  # of the whole, which is beside everything: it has to say what it was concluded from
        return bool(wrong) and not placed.concluded
    around = {path[:-1] or path for path in wrong}
    return any(path[: len(placed.path)] == placed.path or placed.path[: len(path)] == path for path in around)
