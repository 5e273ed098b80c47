"""Pages of what is stored for one session, read while others read theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mqi_clients
import pytest
from frame_proxy import FORWARD, FrameProxy
from ibm_rig import served

from gateway.backends.ibm.connection import Connection, state_put
from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.inspection import IbmInspection
from gateway.backends.ibm.reader import Reader
from gateway.mqi.wire import Verb
from gateway.ports.batch import Token
from gateway.ports.state_queues import OUT

pytestmark = pytest.mark.mqi
SETTINGS = ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw")
SESSIONS, ROWS, PAGE = 20, 40, 4


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: list[bytes]) -> Iterator[list[int]]:
    """A queue with messages of each of these keys in turn; the verbs of what connects after them."""
    mqi_clients.load_bindings()
    verbs: list[int] = []

    def decide(verb: int) -> str:
        verbs.append(verb)
        return FORWARD

    with served(None, tmp_path / "mqi.sock") as queue_manager:
        assert queue_manager.mqsc(f"DEFINE QLOCAL({OUT}) REPLACE").ok
        monkeypatch.setenv("MQGATE_MQI", str(tmp_path / "mqi.sock"))
        writer = Connection(load("ibmmq").connect(SETTINGS), MessageIds(1.0, b"test"))
        for number in range(ROWS):
            for key in keys:
                writer.put_run(state_put(OUT, key, b"%d" % number), asynchronous=False)
        writer.session.commit()
        proxy = FrameProxy(tmp_path / "proxy.sock", tmp_path / "mqi.sock", decide)
        monkeypatch.setenv("MQGATE_MQI", str(proxy.path))
        yield verbs
        writer.session.disconnect()
        proxy.close()


def test_readers_of_pages_do_not_send_each_other_to_the_beginning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As sessions with much that is stored, taken over or fetched at the same time."""
    keys = [b"key %d".ljust(24) % number for number in range(SESSIONS)]
    with counted(monkeypatch, tmp_path, keys) as verbs:
        reader = Reader(load("ibmmq"), SETTINGS, MessageIds(2.0, b"more"))
        last: dict[bytes, Token | None] = dict.fromkeys(keys)
        found: dict[bytes, list[bytes]] = {key: [] for key in keys}
        some = keys[:10]
        for _ in range(0, ROWS, PAGE):
            for key in some:
                page = reader.fetch(OUT, key, PAGE, last[key])
                found[key] += [stored.data for stored in page]
                last[key] = page[-1].token
        assert verbs.count(Verb.GET) == len(some) * ROWS
        last, found = dict.fromkeys(keys), {key: [] for key in keys}
        for _ in range(0, ROWS, PAGE):
            for key in keys:  # more than cursors are kept for
                page = reader.fetch(OUT, key, PAGE, last[key])
                found[key] += [stored.data for stored in page]
                last[key] = page[-1].token
        assert all(got == [b"%d" % number for number in range(ROWS)] for got in found.values())
        assert verbs.count(Verb.OPEN) - verbs.count(Verb.CLOSE) < 25
        reader.close()


def test_pages_of_a_queue_that_others_look_at_go_on_where_they_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As two people who page through it, each of whose pages says how old its first message is."""
    with counted(monkeypatch, tmp_path, [b"key".ljust(24)]) as verbs:
        inspection = IbmInspection(load("ibmmq"), SETTINGS, MessageIds(2.0, b"more"), lambda: [OUT])
        pages: list[list[bytes]] = [[], []]
        last: list[str | None] = [None, None]
        for _ in range(0, ROWS, PAGE):
            for reader, found in enumerate(pages):
                assert inspection.queue(OUT).depth == ROWS
                page = inspection.browse(OUT, PAGE, last[reader])
                found += [seen.data for seen in page]
                last[reader] = page[-1].token
        assert pages == [[b"%d" % number for number in range(ROWS)]] * 2
        assert verbs.count(Verb.GET) == 2 * ROWS + 2 * ROWS // PAGE
        inspection.close()


def test_a_page_that_begins_within_the_last_one_does_not_begin_at_the_first_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a search that has found enough before its page ended. What is named by a message that was taken meanwhile is
    looked for from the first one."""
    with counted(monkeypatch, tmp_path, [b"key".ljust(24), b"other".ljust(24)]) as verbs:
        reader = Reader(load("ibmmq"), SETTINGS, MessageIds(2.0, b"more"))
        for key, step in ((b"", 2), (b"key".ljust(24), 1)):
            every = reader.fetch(OUT, key, 30 * step, None)
            verbs.clear()
            middle = every[20 * step]
            page = reader.fetch(OUT, key, PAGE, middle.token)
            assert [stored.token for stored in page] == [one.token for one in every[20 * step + 1 :][:PAGE]]
            assert verbs.count(Verb.GET) <= PAGE + 1
        taker = Connection(load("ibmmq").connect(SETTINGS), MessageIds(3.0, b"take"))
        assert taker.get(taker.input(OUT), bytes(middle.token), OUT) is not None
        taker.session.commit()
        page = reader.fetch(OUT, key, PAGE, middle.token)
        assert [stored.token for stored in page] == [one.token for one in every[21:][:PAGE]]
        taker.session.disconnect()
        reader.close()
