"""gateway.app.queue_managers.embedded: what the settings say of the queue manager, and what MQSC has said."""

from __future__ import annotations

from pathlib import Path

import pytest
from schedulers import ManualScheduler

from gateway.app.queue_managers.embedded import open_embedded
from gateway.config.load import load_settings
from gateway.ports.counters import Counters
from gateway.ports.mqi import ObjectDescriptor, PutOptions
from gateway.queue_manager.descriptor import default_descriptor
from gateway.queue_manager.embedded import EmbeddedQueueManager

AUTHINFO = "SYSTEM.DEFAULT.AUTHINFO.IDPWOS"
BY_HAND = f"ALTER QMGR MAXUMSGS(5000)\nALTER AUTHINFO({AUTHINFO}) CHCKCLNT(REQUIRED)"


def opened(folder: Path, more: str = "", counters: Counters | None = None) -> EmbeddedQueueManager:
    file = folder / "settings.yaml"
    file.write_text(f"queue_manager: {{embedded: {{path: data{more}}}}}\n")
    return open_embedded(load_settings(file, {}, {}), folder / "data", ManualScheduler(), counters or Counters())


def attributes(queue_manager: EmbeddedQueueManager) -> str:
    shown = queue_manager.mqsc(f"DISPLAY QMGR MAXUMSGS\nDISPLAY AUTHINFO({AUTHINFO}) CHCKCLNT")
    return " ".join(str(shown).split())


def test_a_start_does_not_take_back_what_was_altered_by_hand(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.mqsc(BY_HAND)
    first.close()
    again = opened(tmp_path)
    shown = attributes(again)
    again.close()
    assert "MAXUMSGS(5000)" in shown
    assert "CHCKCLNT(REQUIRED)" in shown


def test_nor_what_the_file_of_objects_says(tmp_path: Path) -> None:
    (tmp_path / "objects.mqsc").write_text(BY_HAND + "\n")
    made = opened(tmp_path, ", objects: objects.mqsc")
    shown = attributes(made)
    made.close()
    assert "MAXUMSGS(5000)" in shown
    assert "CHCKCLNT(REQUIRED)" in shown


def test_the_settings_have_the_last_word_where_they_say_it(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.mqsc(BY_HAND)
    first.close()
    again = opened(tmp_path, ", check_client: none, max_uncommitted: 7000")
    shown = attributes(again)
    again.close()
    assert "MAXUMSGS(7000)" in shown
    assert "CHCKCLNT(NONE)" in shown


def test_a_report_that_no_queue_takes_is_counted_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    manager = opened(tmp_path, counters=counters)
    manager.mqsc("ALTER QLOCAL(SYSTEM.DEAD.LETTER.QUEUE) PUT(DISABLED)\nDEFINE QLOCAL(A)")
    program = manager.connect(application="tests")
    coa = default_descriptor(report=0x100, reply_to_q=b"NOWHERE")
    program.put1(ObjectDescriptor("A"), coa, PutOptions(4), b"x")
    manager.close()
    assert counters.messages_dropped["_none", "undelivered"] == 1
    assert "NOWHERE refuses it (2085)" in caplog.text
    assert "SYSTEM.DEAD.LETTER.QUEUE" in caplog.text
