from typing import Self, TypeAlias

Marker: TypeAlias = tuple[bool, int, bytes, bytes, int, bytes, bytes]
Run: TypeAlias = tuple[int, int, bool, list[bytes], list[bytes], int, bytes, bytes, bytes | None, bytes]
Result: TypeAlias = tuple[int, int, int, int, int, list[list[bytes]]]

class Carrier:
    def __new__(cls, put: int, get: int, commit: int) -> Self: ...
    def carry(
        self,
        connection: int,
        marker: Marker | None,
        taken: bytes | None,
        offered: bytes,
        runs: list[Run],
        commit: bool,
        /,
    ) -> Result: ...
    def post(
        self,
        connection: int,
        marker: Marker | None,
        taken: bytes | None,
        offered: bytes,
        runs: list[Run],
        commit: bool,
        /,
    ) -> int: ...
    def wait(self, seconds: float, /) -> int: ...
    def wake(self) -> None: ...
    def take(self, refused: bool, /) -> Result | None: ...
    def tell(self, descriptor: int, /) -> None: ...
