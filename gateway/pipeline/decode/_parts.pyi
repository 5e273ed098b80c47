from typing import Any, TypeAlias

Buffer: TypeAlias = Any

def payloads(bounds: Buffer, data: Buffer, skips: Buffer, /) -> tuple[bytes, bytes] | None: ...
def headers(
    head_bounds: Buffer, head_data: Buffer, head_of: Buffer, bounds: Buffer, data: Buffer, skips: Buffer, /
) -> tuple[bytes, bytes]: ...
