"""What a command loads: nothing of the gateway for its help, and nothing of a queue manager where a gateway answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("twisted", "pydantic", "rich", "gateway.queue_manager", "gateway.broker", "gateway.backends",
         "gateway.bridge", "gateway.rules")  # fmt: skip


def loaded(statement: str) -> set[str]:
    """Returns the heavy packages that are loaded after a statement, in a fresh interpreter."""
    look = f"import sys\n{statement}\nprint([one for one in {HEAVY!r} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=120)
    return set(eval(done.stdout.splitlines()[-1]))


def test_help_needs_none_of_it() -> None:
    assert loaded("import gateway.cli.main") == set()


@pytest.mark.parametrize("module", ["queue", "client", "dlq", "rule", "running", "mqsc"])
def test_commands_on_a_running_gateway_load_no_queue_manager(module: str) -> None:
    assert not loaded(f"import gateway.cli.{module}") & {"twisted", "gateway.queue_manager", "gateway.broker"}


def test_a_list_of_queues_of_a_stopped_store_loads_neither_server_nor_broker(tmp_path: Path) -> None:
    ask = f"from gateway.cli.queue import list_\nlist_(['--data', {str(tmp_path)!r}], standalone_mode=False)"
    assert loaded(ask) == {"pydantic", "gateway.queue_manager"}
