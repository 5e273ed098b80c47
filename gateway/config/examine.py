"""Validates a document of configuration against a model, finds everything that is wrong with it, and keeps what is
right."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gateway.config.findings import Placed, left_out, placed
from gateway.config.source import Document, Path
from gateway.errors import Finding

M = TypeVar("M", bound=BaseModel)


def examine(document: Document, model: type[M]) -> tuple[M | None, list[Finding]]:
    """The value of a document as a model, and everything that is wrong with it, in the order of the text. Wrong values
    are left out of the model; values that only contradict each other are in it. None: nothing can be made of the
    document. Contradictions are found only among values that are right by themselves, so the value is validated again
    without the wrong ones until nothing new is found."""
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
    """The value without its wrong parts and with the contradictions that are known; or, if more is wrong, None and
    that."""
    whole, document.value = document.value, left_out(document.value, wrong) if wrong else document.value
    try:
        return model.model_validate(document.value, context=lambda one: str(one) in known), []
    except ValidationError as error:
        return None, placed(error, document, model)
    finally:
        document.value = whole


def _follows(placed: Placed, wrong: set[Path]) -> bool:
    """Whether a contradiction may only be there because a wrong value was left out: one next to it, or one that it was
    concluded from."""
    if any(path[:1] == read[:1] for path in wrong for read in placed.concluded):
        return True
    if not placed.path:  # a contradiction of the whole is next to everything, so it must say what it was concluded from
        return bool(wrong) and not placed.concluded
    around = {path[:-1] or path for path in wrong}
    return any(path[: len(placed.path)] == placed.path or placed.path[: len(path)] == path for path in around)
