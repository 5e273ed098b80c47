"""What a message costs as one thing beside it is doubled, shape by shape: `python tests/bench/sizes.py [--only REGEX]`.

As `receiving.py`, in this process and without sockets. Microseconds of processor time of a message (of an item, where
it says so), at a size and at its doubles, the least of some repetitions; growth is the last over the first. A shape
that grows is a cliff: what it does for one message depends on how many others there are. `--profile` shows where the
time of the largest size goes. With `--turns` the longest call on the reactor's
behalf, in milliseconds.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import device_shapes
import operator_shapes
import program_shapes
from shapes import SHAPES, World, now

from gateway.app.memory import keep_what_is_freed

MODULES = device_shapes, operator_shapes, program_shapes
"""Their shapes are known by now."""
REPETITIONS = 3


@contextmanager
def opened(files: tuple[str, str], folder: Path | None) -> Iterator[World]:
    """On a directory that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="sizes-", dir=folder) as name:
        world = World(Path(name), *files)
        try:
            yield world
        finally:
            world.close()


def cost(
    name: str, size: int, folder: Path | None, profile: cProfile.Profile | None = None
) -> tuple[float, float, str]:
    """Microseconds of a message, and the longest call in milliseconds."""
    files, act, _ = SHAPES[name]
    with opened(files(size), folder) as world:
        rounds = act(world, size)
        next(rounds)  # routes, caches
        least, world.longest = float("inf"), 0.0
        for _ in range(REPETITIONS):
            world.own, before = 0.0, now()
            if profile:
                profile.enable()
            count = next(rounds)
            if profile:
                profile.disable()
            least = min(least, (world.own or now() - before) / count * 1e6)
        return least, world.longest * 1000, world.doing


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression")
    parser.add_argument("--turns", action="store_true", help="the longest call too: the costs are more then")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--ends", action="store_true", help="the first and the last size only")
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    given = parser.parse_args()
    World.timed = given.turns
    keep_what_is_freed()
    print("| shape | us at its sizes | growth | longest call |\n|---|---|---|---|")
    for name, (_, _, sizes) in SHAPES.items():
        if not re.search(given.only, name):
            continue
        try:
            profile = cProfile.Profile() if given.profile else None
            if profile:
                cost(name, sizes[-1], given.folder, profile)
                pstats.Stats(profile).sort_stats("tottime").print_stats(14)
                continue
            chosen = (sizes[0], sizes[-1]) if given.ends else sizes
            found = [(size, *cost(name, size, given.folder)) for size in chosen]
            said = ", ".join(f"{size:,}: {each:.2f}" for size, each, _, _ in found)
            print(
                f"| {name} | {said} | {found[-1][1] / found[0][1]:.2f} | {found[-1][2]:.0f} ms {found[-1][3]} |",
                flush=True,
            )
        except Exception as error:  # noqa: BLE001 -- the others are measured all the same
            print(f"| {name} | FAILED {error!r} | | |", flush=True)


if __name__ == "__main__":
    main()
