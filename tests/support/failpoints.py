"""Every public function of some rooms as a place where a defect can be met: armed, it raises."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

ROOMS = ("bridge", "routing", "rules", "session")
_CACHED = type(functools.lru_cache(lambda: None))


class Boom(Exception):
    """A defect."""


class Point(NamedTuple):
    """One function or method."""

    name: str
    owner: Any
    """Its module or class."""
    attribute: str


def points(rooms: tuple[str, ...] = ROOMS) -> list[Point]:
    """All of them, by name."""
    found: list[Point] = []
    for room in rooms:
        package = importlib.import_module(f"gateway.{room}")
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"gateway.{room}.{info.name}")
            found += _points(module, f"{room}.{info.name}")
    return found


def _points(module: ModuleType, where: str) -> Iterator[Point]:
    for name, value in list(vars(module).items()):
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) or isinstance(value, _CACHED):
            yield Point(f"{where}.{name}", module, name)
        elif inspect.isclass(value):
            for method, one in list(vars(value).items()):
                if not method.startswith("_") and isinstance(one, (type(_points), property, staticmethod, classmethod)):
                    yield Point(f"{where}.{name}.{method}", value, method)


class Armed:
    """A failpoint that is in its place: it raises while `on`, from the call `after` on, `times` times."""

    def __init__(self) -> None:
        self.on = False
        self.after = 0
        self.times = 1 << 30
        self.raised = 0
        self.calls = 0

    def reached(self) -> None:
        """The function is called."""
        if not self.on:
            return
        self.calls += 1
        if self.calls > self.after and self.raised < self.times:
            self.raised += 1
            raise Boom("here")

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Something that is to go well."""
        before, self.on = self.on, False
        try:
            yield
        finally:
            self.on = before


@contextmanager
def armed(point: Point, switch: Armed | None = None) -> Iterator[Armed]:
    """Put a failpoint into a function, wherever it is known by a name; off to begin with."""
    switch = switch or Armed()
    original = vars(point.owner)[point.attribute]
    made = _wrapped(original, switch)
    places = [(point.owner, point.attribute)]
    if inspect.ismodule(point.owner):
        for name, module in list(sys.modules.items()):
            if name.startswith("gateway") and module is not None:
                places += [(module, key) for key, value in list(vars(module).items()) if value is original]
    for owner, attribute in places:
        setattr(owner, attribute, made)
    try:
        yield switch
    finally:
        for owner, attribute in places:
            setattr(owner, attribute, original)


def _wrapped(original: Any, switch: Armed) -> Any:
    if isinstance(original, staticmethod):
        return staticmethod(_function(original.__func__, switch))
    if isinstance(original, classmethod):
        return classmethod(_function(original.__func__, switch))
    if isinstance(original, property):
        return property(_function(original.fget, switch), original.fset)
    return _function(original, switch)


def _function(original: Callable[..., Any], switch: Armed) -> Callable[..., Any]:
    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        switch.reached()
        return original(*args, **kwargs)

    return called
