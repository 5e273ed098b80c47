"""The admin page of a running gateway in Chromium: a device in the browser publishes, the page shows the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from long_form import LONG
from ops_machine import BROWSER_FLAGS, CACHE, browser_path
from patient_device import Device
from running_gateway import TOKEN, Running, publish, running

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; tests/run installs it")
pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("chromium")]

PICTURES = CACHE / "shots"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("gateway")) as found:
        publish(found, "lost/x", "1", 3)
        publish(found, "plant/lima/line/7/temperature", "21.5", 40)
        yield found


@pytest.fixture(scope="module")
def page(gateway: Running) -> Iterator[Any]:
    """One signed-in page for all tests; complaints on its console fail the test that provoked them."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path(), args=BROWSER_FLAGS)
        context = browser.new_context(viewport={"width": 1280, "height": 860})
        context.set_default_timeout(60_000)
        context.add_init_script(f"sessionStorage.setItem('mqgate.token', '{TOKEN}')")
        found = context.new_page()
        found.complaints = []
        found.on(
            "console", lambda said: found.complaints.append(said.text) if said.type in {"error", "warning"} else None
        )
        found.on("pageerror", lambda error: found.complaints.append(str(error)))
        yield found
        browser.close()


@pytest.fixture(autouse=True)
def _no_complaints(page: Any) -> Iterator[None]:
    page.complaints.clear()
    yield
    assert page.complaints == []


def visit(page: Any, gateway: Running, section: str) -> None:
    page.goto(f"http://127.0.0.1:{gateway.admin}/admin/#/{section}")
    page.wait_for_selector("h1")


def picture(page: Any, name: str) -> None:
    if LONG:
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(PICTURES / f"{name}.png"))


def test_the_address_of_the_admin_port_leads_to_the_page(page: Any, gateway: Running) -> None:
    page.goto(f"http://127.0.0.1:{gateway.admin}/")
    page.wait_for_selector("header .badge.good:has-text('ready')")
    page.wait_for_selector(".tile:has-text('On disk'):has-text('43 messages, ')")
    assert "administrator" in page.inner_text("header .identity")


@pytest.mark.parametrize(
    "section",
    ["overview", "rules", "clients", "retained", "queues", "queues/MQGATE.DEFAULT", "dead-letters", "try", "trace",
     "test-client", "pipeline", "gateways", "settings"],
)  # fmt: skip
def test_each_section_shows_what_the_gateway_says(page: Any, gateway: Running, section: str) -> None:
    visit(page, gateway, section)
    page.wait_for_load_state("networkidle")
    assert page.locator(".notice.bad").count() == 0


def test_a_device_in_the_browser_publishes_and_hears_itself(page: Any, gateway: Running) -> None:
    visit(page, gateway, "test-client")
    page.fill("input[name=clientId]", "browser")
    page.click("button:text-is('Connect')")
    page.wait_for_selector("span:has-text('connected as browser')")
    page.click("button:text-is('Subscribe')")
    page.wait_for_selector(".log p:has-text('SUBACK')")
    for qos, last in (("0", "PUBLISH plant/lima/line/7/temperature qos=0"), ("1", "PUBACK"), ("2", "PUBCOMP")):
        page.select_option("fieldset .panel:first-child select", qos)
        page.click("button:text-is('Publish')")
        page.wait_for_selector(f".log p.in:has-text('{last}')")
    heard = page.locator(".log p.in", has_text="PUBLISH plant/lima/line/7/temperature")
    heard.nth(2).wait_for()
    picture(page, "test-client")
    page.click("button:text-is('Unsubscribe')")
    page.wait_for_selector(".log p:has-text('UNSUBACK')")


def test_what_was_published_is_on_its_queue_with_its_headers(page: Any, gateway: Running) -> None:
    visit(page, gateway, "queues")
    page.click("a:text-is('MQGATE.DEFAULT')")
    page.wait_for_selector("dd:has-text('43 of')")
    page.click("td button.link >> nth=0")
    text = page.inner_text("dialog[open]")
    for expected in ("21.5", "MQRFH2", "plant/lima/line/7/temperature", "MQPER_PERSISTENT"):
        assert expected in text
    picture(page, "message")
    page.keyboard.press("Escape")


def test_a_message_put_here_is_counted_and_shown(page: Any, gateway: Running) -> None:
    visit(page, gateway, "queues/MQGATE.DEFAULT")
    page.click("summary:text-is('Put a test message')")
    page.fill("textarea[name=text]", "put by hand")
    page.select_option("select[name=priority]", "9")
    page.click("button:text-is('Put')")
    page.wait_for_selector("td:has-text('put by hand')")


def test_dead_letters_are_put_back_elsewhere(page: Any, gateway: Running) -> None:
    visit(page, gateway, "dead-letters")
    page.wait_for_selector("button:text-is('MQRC_UNKNOWN_OBJECT_NAME (2085)')")
    picture(page, "dead-letters")
    page.select_option("select[name=how]", "to")
    page.fill("label:has-text('Queue') input", "MQGATE.DEFAULT")
    page.click("button:text-is('Replay all')")
    page.wait_for_selector(".notice:has-text('3 of 3 put back')")
    page.wait_for_selector("td:has-text('All is well')")


def test_try_out_explains(page: Any, gateway: Running) -> None:
    visit(page, gateway, "try")
    page.fill("input[name=topic]", "plant/lima/line/7/temperature")
    page.fill("textarea[name=text]", "21.5")
    page.click("button:text-is('Try')")
    page.wait_for_selector("h2:has-text('readings → MQGATE.DEFAULT')")
    picture(page, "try-out")


def test_a_trace_follows_a_client(page: Any, gateway: Running) -> None:
    visit(page, gateway, "trace/line-009")
    page.click("button:text-is('Start')")
    page.wait_for_selector("span:has-text('waiting for something')")
    publish(gateway, "plant/lima/line/7/temperature", "22", 2, client_id="line-009")
    page.wait_for_selector(".log p:has-text('line-009 PUBLISH')")
    picture(page, "trace")


def test_a_long_client_identifier_leaves_room_for_the_other_columns(page: Any, gateway: Running) -> None:
    with Device("127.0.0.1", gateway.port, "long" * 750) as talker:
        assert talker.connect() == 0
        visit(page, gateway, "clients")
        page.wait_for_selector("td a:has-text('longlonglong')")
        assert page.eval_on_selector(".scroll:has(td a)", "it => it.scrollWidth <= it.clientWidth")


@pytest.mark.parametrize("name", [".", "..", "a/b", "%2F", ";..", "..;", "\u202eabc", "# ?"])
def test_a_client_is_reached_whatever_its_name(page: Any, gateway: Running, name: str) -> None:
    with Device("127.0.0.1", gateway.port, name) as talker:
        assert talker.connect() == 0
        visit(page, gateway, "clients")
        page.get_by_role("link", name=name, exact=True).click()
        page.wait_for_selector("dt:text-is('Protocol')")
        assert page.inner_text("h1 bdi") == name
        page.click("button:text-is('Disconnect')")
        page.wait_for_selector(".notice:has-text('was disconnected')")
    page.complaints.clear()  # a session that has ended is asked for once more: 404


def test_long_names_leave_room_for_everything_else(page: Any, gateway: Running) -> None:
    """A client with the longest identifier there is, which the browser would need minutes to lay out, too."""
    name = "long" * 750
    with Device("127.0.0.1", gateway.port, name) as talker, Device("127.0.0.1", gateway.port, "L" * 65_000) as longest:
        assert talker.connect() == longest.connect() == 0
        visit(page, gateway, "clients")
        page.wait_for_selector("td bdi:has-text('LLL')")
        talker.publish(f"lost/{name}", b"1", 1)
        talker.publish(f"hall/{name}", b"1", 1, retain=True)
        visit(page, gateway, f"clients/{name}")
        page.wait_for_selector("dt:text-is('Protocol')")
        assert page.eval_on_selector("h1", "it => it.offsetHeight") < 200
        assert page.get_attribute("h1 bdi", "title") == name
        for section in ("dead-letters", "retained?under=hall%2F"):
            visit(page, gateway, section)
            page.wait_for_selector("td bdi:has-text('longlong')")
            widths = "[...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth - one.clientWidth)"
            assert max(page.evaluate(widths)) <= 0, section
        talker.publish(f"hall/{name}", b"", 1, retain=True)


def test_an_address_that_is_none_is_said(page: Any, gateway: Running) -> None:
    for section in ("nonsense", "clientz/a"):
        visit(page, gateway, section)
        page.wait_for_selector(f".notice.bad:has-text('The page has no section {section.split('/')[0]}')")
        assert page.inner_text("h1") == "Overview"
    visit(page, gateway, "clients/%")
    page.wait_for_selector("h1 bdi:text-is('%')")
    page.complaints.clear()  # there is no such client: 404


def test_a_refused_reload_is_said_with_file_and_line(page: Any, gateway: Running) -> None:
    good = (gateway.folder / "plant.yaml").read_text()
    visit(page, gateway, "overview")
    (gateway.folder / "plant.yaml").write_text(good.replace("queue:", "quue:", 1))
    page.click("button:text-is('Reload configuration')")
    page.wait_for_selector(".alert:has-text('plant.yaml:4')")
    (gateway.folder / "plant.yaml").write_text(good)
    page.click("button:text-is('Reload configuration')")
    page.wait_for_selector(".alert", state="detached")
    page.complaints.clear()  # the browser reports the 422 itself


def test_overview_shows_the_traffic(page: Any, gateway: Running) -> None:
    visit(page, gateway, "overview")
    publish(gateway, "plant/lima/line/7/temperature", "22", 200)
    page.wait_for_selector(".tile:has-text('From devices') small:has-text('since start')")
    page.wait_for_selector("path.line.one[d^=M]", state="attached")
    picture(page, "overview")
    page.emulate_media(color_scheme="dark")
    picture(page, "overview-dark")
    page.emulate_media(color_scheme="light")


def test_retained_messages_are_reached_by_their_tree_and_cleared(page: Any, gateway: Running) -> None:
    with Device("127.0.0.1", gateway.port, "keeper") as device:
        device.connect()
        for line in (1, 2):
            device.publish(f"hall/{line}/state", b"open", 1, retain=True)
    visit(page, gateway, "retained")
    page.click("a:has-text('hall/')")
    page.click("a:has-text('1/')")
    picture(page, "live-retained")
    page.click("button:has-text('open')")
    page.wait_for_selector("dialog pre:has-text('open')")
    page.click("dialog button:has-text('Close')")
    page.check("input[aria-label='Choose hall/1/state']")
    page.click("button:has-text('Clear 1 chosen')")
    page.click("dialog button:has-text('Clear')")
    page.wait_for_selector(".notice:has-text('1 retained message cleared')")
    page.click("h1 a:has-text('hall')")
    page.wait_for_selector("tbody tr:has-text('2/')")
    assert page.locator("tbody tr").count() == 1
    page.go_back()
    page.wait_for_selector("td.none")


def test_definitions_are_downloaded_and_read_again(page: Any, gateway: Running, tmp_path: Path) -> None:
    visit(page, gateway, "queues")
    page.click("summary:has-text('Export and import')")
    with page.expect_download() as download:
        page.click("button:has-text('Download as MQSC')")
    script = download.value.path().read_text()
    assert "DEFINE QLOCAL('MQGATE.DEFAULT') REPLACE" in script
    (tmp_path / "more.mqsc").write_text(script + "DEFINE QLOCAL(BROUGHT) DESCR('from elsewhere')\n")
    page.set_input_files("input[type=file]", tmp_path / "more.mqsc")
    page.click("button:has-text('Run commands')")
    page.click("dialog button:has-text('Run')")
    page.wait_for_selector("pre:has-text('No commands have a syntax error')")
    picture(page, "live-definitions")
    page.wait_for_selector("tbody a:has-text('BROUGHT')")
