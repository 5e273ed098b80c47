"""A document of configuration as a model: everything that is wrong with it at once, and what is right of it."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gateway.config.findings import Placed, left_out, placed
from gateway.config.source import Document, Path
from gateway.errors import Finding

M = TypeVar("M", bound=BaseModel)


def examine(document: Document, model: type[M]) -> tuple[M | None, list[Finding]]:
    """The value of a document as a model, as far as it is right, and everything that is wrong with it, in the order of
    the text. None: nothing can be made of it. Whether values go together is known when each is right by itself: wrong
    ones are left out and the others looked at again, until there is nothing that was not found before."""
    found, wrong, contradicting, known = list[Finding](), set[Path](), set[Path](), set[str]()
    right, these = _validated(document, model, wrong, known)
    while these:
        found += [one.finding for one in these if not _follows(one, wrong)]
        before = len(wrong) + len(known)
        wrong |= {one.path for one in these if one.contradiction is None}
        contradicting |= {one.path for one in these if one.contradiction is not None}
        known |= {str(one.contradiction) for one in these}
        if len(wrong) + len(known) == before:
            break
        right, these = _validated(document, model, wrong, known)
    found.sort(key=lambda finding: (finding.line, finding.column))
    return _without(document, model, wrong | contradicting) if contradicting else right, found


def _without(document: Document, model: type[M], paths: set[Path]) -> M | None:
    """What is left without these parts, and without what cannot be without them, whether it goes together or not."""
    right, these = _validated(document, model, paths, None)
    while not {one.path for one in these} <= paths:
        paths |= {one.path for one in these}
        right, these = _validated(document, model, paths, None)
    return right


def _validated(
    document: Document, model: type[M], wrong: set[Path], known: set[str] | None
) -> tuple[M | None, list[Placed]]:
    """The value without what is wrong, but for contradictions that are known (None: all are), or what is wrong
    besides."""
    whole, document.value = document.value, left_out(document.value, wrong) if wrong else document.value
    try:
        return model.model_validate(document.value, context=lambda one: known is None or str(one) in known), []
    except ValidationError as error:
        return None, placed(error, document, model)
    finally:
        document.value = whole


def _follows(placed: Placed, wrong: set[Path]) -> bool:
    """Whether a contradiction may only be there because a wrong value was left out: one beside it, or one that it was
    concluded from."""
    around = {path[:-1] or path for path in wrong}
    near = any(path[: len(placed.path)] == placed.path or placed.path[: len(path)] == path for path in around)
    return near or any(path[:1] == read[:1] for path in wrong for read in placed.concluded)
