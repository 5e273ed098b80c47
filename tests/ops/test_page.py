"""The admin page in a real Chromium: every section with something of everything, operations, keyboard, width, colours.

The answers come from page_answers.py and are valid by the OpenAPI document; the page against a running gateway is
tests/ops/test_page_live.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema_rs
import page_answers
import pytest
from long_form import LONG
from ops_machine import BROWSER_FLAGS, CACHE, ROOT, axe, browser_path

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; tests/run installs it")
pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("chromium")]

TOKENS = [each["token"] for each in page_answers.RECORDED["GET /dlq"]["body"]["items"]]
SECTIONS = ["overview", "rules", "rules/commands", "rules/edit%20mapping", "clients", "clients/line-001",
            "retained", "queues", "queues/TELEMETRY.LIMA", "dead-letters", "try", "trace", "test-client",
            "pipeline", "gateways", "settings", "users", "audit"]  # fmt: skip
DARK = ("overview", "clients", "try")
"""Those that are looked at with dark colours too: between them they have everything that has a colour."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path(), args=BROWSER_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def well() -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    with page_answers.serving() as served:
        yield served


@pytest.fixture
def complaints() -> list[str]:
    """What the console of the page has said."""
    return []


@pytest.fixture
def opened(chromium: Any, well: Any, complaints: list[str]) -> Iterator[Any]:
    """A page that is signed in; an error on its console fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.add_init_script(f"sessionStorage.setItem('mqgate.token', '{page_answers.TOKEN}')")
    yield page
    context.close()
    assert complaints == []


def visit(page: Any, well: Any, section: str) -> None:
    page.goto(f"{well[0]}#/{section}")
    page.wait_for_selector("h1")


@pytest.mark.parametrize("state", [True, False])
def test_the_answers_are_valid_by_the_openapi_document(state: bool) -> None:
    document = json.loads((page_answers.STATIC / "openapi.json").read_text())
    for request, (schema, body) in page_answers.answers(well=state).items():
        if schema:
            rules = {"components": document["components"], "$ref": f"#/components/schemas/{schema}"}
            errors = [str(error) for error in jsonschema_rs.validator_for(rules).iter_errors(body)]
            assert errors == [], request
    rules = {"components": document["components"], "$ref": "#/components/schemas/TraceEvent"}
    assert jsonschema_rs.validator_for(rules).is_valid(page_answers.TRACE)


@pytest.mark.parametrize("section", SECTIONS)
def test_each_section_fits_at_400_pixels_is_labelled_and_keeps_nobody_out(
    opened: Any, well: Any, complaints: list[str], section: str
) -> None:
    opened.emulate_media(reduced_motion="reduce")
    opened.add_init_script(path=str(axe()))
    opened.set_viewport_size({"width": 400, "height": 800})
    visit(opened, well, section)
    opened.wait_for_load_state("networkidle")
    assert opened.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    unnamed = opened.evaluate(
        """[...document.querySelectorAll('main button, main a, main input, main select, main textarea')].filter(
           e => !(e.textContent.trim() || e.labels?.length || e.getAttribute('aria-label'))).map(e => e.outerHTML)"""
    )
    assert unnamed == []
    if LONG:
        (CACHE / "shots").mkdir(parents=True, exist_ok=True)
        opened.screenshot(path=str(CACHE / "shots" / f"narrow-{section.replace('/', '-')}.png"))
    opened.set_viewport_size({"width": 1280, "height": 900})
    assert complaints == []
    for scheme in ("light", *(["dark"] if section in DARK else [])):
        opened.emulate_media(color_scheme=scheme)
        violations = opened.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        assert [(scheme, each["id"], each["nodes"][0]["html"]) for each in violations] == []
    complaints.clear()  # of what axe does, which the page may not


def test_no_table_is_cut_off_on_a_wide_screen(opened: Any, well: Any) -> None:
    for section in ("overview", "rules", "clients", "queues", "dead-letters", "settings"):
        visit(opened, well, section)
        opened.wait_for_selector("tbody tr td:not(.none)")
        widths = "[...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth - one.clientWidth)"
        assert max(opened.evaluate(widths)) <= 0, section


def test_long_names_and_large_numbers_have_room(opened: Any, well: Any) -> None:
    def renamed(route: Any) -> None:
        body = route.fetch().text().replace('"TELEMETRY.LIMA"', '"TELEMETRY.A.RATHER.LONG.QUEUE.NAME.OF.48.CHARS01"')
        route.fulfill(body=body, content_type="application/json")

    opened.route("**/api/v1/queues*", renamed)
    visit(opened, well, "queues")
    opened.wait_for_selector("a:has-text('48.CHARS01')")
    widths = "[...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth - one.clientWidth)"
    assert max(opened.evaluate(widths)) <= 0
    opened.evaluate("document.querySelectorAll('nav .count').forEach((one) => { one.textContent = '99+'; })")
    room = """[...document.querySelectorAll('nav a:not([hidden]) .count')].map((one) =>
        one.parentElement.getBoundingClientRect().right - one.getBoundingClientRect().right)"""
    assert min(opened.evaluate(room)) >= 8
    opened.unroute_all(behavior="ignoreErrors")


def a_page_of(name: str, total: int) -> Any:
    """Answers a listing with one of so many items, as the API does it: a page, and where the next one begins."""

    def paged(route: Any) -> None:
        query = {key: value for key, (value,) in parse_qs(urlsplit(route.request.url).query).items()}
        body = json.loads(route.fetch().text())
        found = [f"{name}{number:04}" for number in range(total)]
        found = [one for one in found if query.get("search", "").lower() in one.lower()]
        begin, limit = int(query.get("after", 0)), int(query["limit"])
        more = str(begin + limit) if begin + limit < len(found) else None
        items = [{**body["items"][0], "name": one} for one in found[begin : begin + limit]]
        answer = json.dumps(body | {"items": items, "total": len(found), "next": more})
        route.fulfill(body=answer, content_type="application/json")

    return paged


def test_of_thousands_of_rules_a_page_is_asked_for_and_all_are_found(opened: Any, well: Any) -> None:
    visit(opened, well, "rules")
    opened.wait_for_selector("tbody tr a")
    assert not opened.locator("main input[type=search]").is_visible()
    assert not opened.locator("button:text-is('More')").is_visible()
    opened.route("**/api/v1/rules?*", a_page_of("line ", 1200))
    opened.reload()
    opened.wait_for_selector("p:has-text('1,200 rules from mappings/plant.yaml, 500 of them here')")
    assert opened.locator("tbody tr").count() == 500
    opened.click("button:text-is('More')")
    opened.wait_for_selector("tbody tr a:has-text('line 0999')")
    assert opened.locator("tbody tr").count() == 1000
    opened.fill("main input[type=search]", "LINE 1199")
    opened.wait_for_selector("tbody tr a:has-text('line 1199')")
    assert opened.locator("tbody tr").count() == 1
    opened.fill("main input[type=search]", "nowhere")
    opened.wait_for_selector("td:has-text('No rule matches.')")
    opened.unroute_all(behavior="ignoreErrors")


def test_more_rules_stay_when_an_answer_from_before_comes_late(opened: Any, well: Any) -> None:
    visit(opened, well, "rules")
    paged, held = a_page_of("line ", 1200), list[Any]()
    opened.route("**/api/v1/rules?*", paged)
    opened.reload()
    opened.wait_for_selector("tbody tr a:has-text('line 0499')")
    opened.route(
        "**/api/v1/rules?*", lambda route: paged(route) if "after=" in route.request.url else held.append(route)
    )
    while not held:  # the page looks again every few seconds
        opened.wait_for_timeout(50)
    opened.click("button:text-is('More')")
    opened.wait_for_selector("tbody tr a:has-text('line 0999')")
    with opened.expect_response("**/api/v1/rules?*"):
        paged(held.pop())
    opened.wait_for_function("() => new Promise((done) => setTimeout(() => done(true), 200))")
    assert opened.locator("tbody tr").count() == 1000
    opened.unroute_all(behavior="ignoreErrors")


def test_more_messages_of_a_queue_come_though_the_page_looks_again_meanwhile(opened: Any, well: Any) -> None:
    held, looked = list[Any](), list[str]()

    def paged(route: Any) -> None:
        body = json.loads(route.fetch().text())
        further = "after=" in route.request.url
        items = [{**body["items"][0], "token": f"{further}-{number}"} for number in range(50)]
        answer = json.dumps(body | {"items": items, "next": None if further else "50"})
        route.fulfill(body=answer, content_type="application/json")

    opened.route("**/api/v1/queues/TELEMETRY.LIMA", lambda route: (looked.append(""), route.continue_()))
    opened.route(
        "**/api/v1/queues/TELEMETRY.LIMA/messages?*",
        lambda route: held.append(route) if "after=" in route.request.url else paged(route),
    )
    visit(opened, well, "queues/TELEMETRY.LIMA")
    playwright.expect(opened.locator("tbody tr")).to_have_count(50)
    opened.click("button:text-is('More')")
    looked.clear()
    while len(looked) < 2:  # the first of them is over when the second comes
        opened.wait_for_timeout(50)
    paged(held.pop())
    playwright.expect(opened.locator("tbody tr")).to_have_count(100)
    opened.unroute_all(behavior="ignoreErrors")


def test_more_dead_letters_stay_when_an_answer_from_before_comes_late(opened: Any, well: Any) -> None:
    held = list[Any]()

    def paged(route: Any) -> None:
        body = json.loads(route.fetch().text())
        further = "after=" in route.request.url
        items = [{**body["items"][0], "token": f"{further}-{number}"} for number in range(100)]
        answer = json.dumps(body | {"items": items, "total": 200, "next": None if further else "100"})
        route.fulfill(body=answer, content_type="application/json")

    opened.route("**/api/v1/dlq?*", paged)
    visit(opened, well, "dead-letters")
    opened.wait_for_selector("p:has-text('the first 100 shown')")
    opened.route("**/api/v1/dlq?*", lambda route: paged(route) if "after=" in route.request.url else held.append(route))
    while not held:  # the page looks again every few seconds
        opened.wait_for_timeout(50)
    opened.click("button:text-is('Next 100')")
    opened.wait_for_selector("p:text-is('200 messages')")
    with opened.expect_response("**/api/v1/dlq?*"):
        paged(held.pop())
    opened.wait_for_function("() => new Promise((done) => setTimeout(() => done(true), 200))")
    assert opened.locator("p:text-is('200 messages')").is_visible()
    opened.unroute_all(behavior="ignoreErrors")


def test_the_list_of_queues_says_how_many_there_are_and_goes_on(opened: Any, well: Any) -> None:
    opened.route("**/api/v1/queues?*", a_page_of("Q.", 700))
    visit(opened, well, "queues")
    opened.wait_for_selector("p:has-text('700 queues, 500 of them here')")
    opened.click("button:text-is('More')")
    opened.wait_for_selector("tbody tr a:has-text('Q.0699')")
    assert opened.locator("tbody tr").count() == 700
    assert not opened.locator("button:text-is('More')").is_visible()
    opened.unroute_all(behavior="ignoreErrors")


def test_the_head_of_a_narrow_page_is_one_line_beside_problems(opened: Any, well: Any) -> None:
    opened.set_viewport_size({"width": 400, "height": 800})
    visit(opened, well, "dead-letters")
    opened.wait_for_selector("header .badge")
    opened.evaluate("document.querySelector('header .badge').textContent = '12 problems'")
    assert opened.evaluate("document.querySelector('header').offsetHeight") <= 60


def test_overview_draws_charts_and_nothing_moves_when_it_refreshes(opened: Any, well: Any) -> None:
    visit(opened, well, "overview")
    opened.wait_for_selector("path.line.three[d^=M]")
    assert "from devices" in opened.get_attribute("figure.chart svg", "aria-label")
    opened.wait_for_selector(".tile:nth-child(2) dd:has-text('/s')")
    shift = """new Promise(done => { let sum = 0;
        const watch = new PerformanceObserver(list => list.getEntries().forEach(e => sum += e.value));
        watch.observe({type: 'layout-shift', buffered: false});
        setTimeout(() => done(sum), 2500); })"""
    assert opened.evaluate(shift) < 0.01


def test_a_queue_manager_that_is_away_and_a_refused_reload_are_said_on_top(chromium: Any) -> None:
    with page_answers.serving(well=False) as (address, _):
        context = chromium.new_context(color_scheme="dark")
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.add_init_script(f"sessionStorage.setItem('mqgate.token', '{page_answers.TOKEN}')")
        page.goto(address)
        page.wait_for_selector(".alert:has-text('no connection to QM1')")
        page.click(".alert li:has-text('TELEMETRY.LIMA') a")
        page.wait_for_selector("h1:has-text('Queues / TELEMETRY.LIMA')")
        page.go_back()
        page.wait_for_selector(".alert:has-text('mappings/plant.yaml:12:5')")
        page.wait_for_selector(".alert.warn:has-text('mqtt.max_qos: 2 -> 1')")
        page.wait_for_selector("header .badge:has-text('not ready')")
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(int(part) for part in background[4:-1].split(",")) < 60
        context.close()


def test_back_closes_a_message_and_brings_the_filters_again(opened: Any, well: Any) -> None:
    visit(opened, well, "clients")
    opened.select_option("select[name=state]", "held_back")
    opened.wait_for_url(re.compile(r"#/clients\?state=held_back$"))
    visit(opened, well, "queues")
    opened.click("td a:text-is('TELEMETRY.LIMA')")
    opened.click("td button.link >> nth=0")
    opened.wait_for_selector("dialog[open]")
    opened.go_back()
    opened.wait_for_selector("dialog", state="detached")
    opened.wait_for_selector("h1:text-is('Queues')")
    opened.go_back()
    opened.wait_for_selector("h1:text-is('Clients')")
    assert opened.input_value("select[name=state]") == "held_back"


def test_devices_are_chosen_and_disconnected(opened: Any, well: Any) -> None:
    visit(opened, well, "clients")
    opened.check("input[aria-label='Choose line-001']")
    opened.click("button:text-is('Disconnect 1 chosen')")
    opened.click("dialog button.danger")
    opened.wait_for_selector(".notice:has-text('1 device disconnected')")
    assert well[1][-1][:2] == ("DELETE", "/api/v1/clients/line-001/connection")


def test_what_was_dropped_is_said_by_reason_until_it_is_acknowledged(chromium: Any) -> None:
    with page_answers.serving(well=False) as (address, _):
        context = chromium.new_context()
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.add_init_script(f"sessionStorage.setItem('mqgate.token', '{page_answers.TOKEN}')")
        page.goto(address)
        page.wait_for_selector(".tile.bad:has-text('denied 3, session full 2; since 20')")
        page.wait_for_selector("p:has-text('2 messages skipped for sessions that were full'):has-text('for line7')")
        page.click("button:text-is('Acknowledge')")
        page.wait_for_selector(".tile:not(.bad):has-text('denied 3, session full 2; since 20')")
        context.close()


def test_settings_are_those_that_are_set_each_with_what_it_is_for(opened: Any, well: Any) -> None:
    visit(opened, well, "settings")
    opened.wait_for_selector("td:has-text('queue_manager.ibm.password_file')")
    assert "mqtt.max_qos" not in opened.inner_text("main")
    assert "File with the password." in opened.inner_text("main")
    opened.check("label:has-text('also what is as shipped') input")
    opened.wait_for_selector("td:has-text('mqtt.max_qos')")


def test_a_rule_that_is_never_reached_says_what_takes_its_publications(opened: Any, well: Any) -> None:
    visit(opened, well, "rules")
    opened.click("tr:has-text('never reached') a")
    opened.wait_for_selector("p:has-text('takes everything it matches') a:text-is('line temperature')")


def test_a_chart_has_ranges_that_back_brings_again_and_a_cursor_with_values(opened: Any, well: Any) -> None:
    visit(opened, well, "queues/TELEMETRY.LIMA")
    opened.wait_for_selector("path.line.one[d^=M]", state="attached")
    opened.click("button:text-is('1 h')")
    opened.wait_for_selector(".chart text:has-text('1 h ago') >> nth=0", state="attached")
    assert opened.evaluate("location.hash").endswith("?range=3600")
    opened.focus("figure.chart svg >> nth=0")
    opened.keyboard.press("ArrowLeft")
    playwright.expect(opened.locator(".chart .when").first).to_contain_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d"))
    assert "put " in opened.get_attribute("figure.chart svg >> nth=0", "aria-label")
    visit(opened, well, "queues")
    opened.go_back()
    opened.wait_for_selector("button[aria-pressed=true]:text-is('1 h')")


def test_without_a_token_one_is_asked_for_by_keyboard_alone(chromium: Any, well: Any) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(well[0])
    page.wait_for_selector("dialog[open] input:focus")
    page.keyboard.press("Tab")  # no user: it is a token
    page.keyboard.type(page_answers.TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("header .identity:has-text('administrator')")
    page.wait_for_selector("h1:has-text('Overview')")
    context.close()


def test_who_is_signed_out_asks_for_nothing_until_he_is_in_again(chromium: Any, well: Any) -> None:
    """A forgotten tab would otherwise be refused every few seconds, and each time be in the audit trail."""
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.clock.install()
    page.add_init_script(f"sessionStorage.setItem('mqgate.token', '{page_answers.TOKEN}')")
    visit(page, well, "overview")
    page.wait_for_selector("header #state .badge")
    page.evaluate("sessionStorage.setItem('mqgate.token', 'not any more')")
    page.clock.run_for(6000)
    page.wait_for_selector("dialog[open]")
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(60_000)
    page.wait_for_load_state("networkidle")
    assert asked == []
    assert page.inner_text("header #state") == "", "how it is with the gateway is not known any more"
    page.keyboard.press("Tab")
    page.keyboard.type(page_answers.TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog", state="detached")
    page.clock.run_for(6000)
    page.wait_for_selector("header #state .badge")
    context.close()


def test_sections_are_reached_by_keyboard(opened: Any, well: Any) -> None:
    visit(opened, well, "clients")
    opened.keyboard.press("/")
    assert opened.evaluate("document.activeElement.type") == "search"
    visit(opened, well, "overview")
    opened.focus("nav a[data-name=queues]")
    opened.keyboard.press("Enter")
    opened.wait_for_selector("h1:has-text('Queues')")
    assert opened.get_attribute("nav a[aria-current]", "data-name") == "queues"


def tab_to(page: Any, text: str) -> None:
    """Press Tab until the element with this text or label has the focus, as somebody without a mouse does."""
    for _ in range(120):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "(e => e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent)(document.activeElement)"
        )
        if found.strip().startswith(text):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"the focus on {text} is not to be seen"
            return
    raise AssertionError(f"{text} is not reached")


def test_dead_letters_are_chosen_shown_and_purged_by_keyboard_alone(opened: Any, well: Any) -> None:
    visit(opened, well, "dead-letters")
    opened.wait_for_selector("tbody input[type=checkbox]")
    tab_to(opened, "Choose ")
    opened.keyboard.press("Space")
    opened.wait_for_selector("button:text-is('Purge 1 chosen')")
    tab_to(opened, "MQRC_Q_FULL")
    opened.keyboard.press("Enter")
    opened.wait_for_selector("dialog[open]:has-text('MQRFH2')")
    opened.keyboard.press("Escape")
    opened.wait_for_selector("dialog", state="detached")
    tab_to(opened, "Purge 1 chosen")
    opened.keyboard.press("Enter")
    opened.wait_for_selector("dialog[open]")
    tab_to(opened, "Purge")
    opened.keyboard.press("Enter")
    opened.wait_for_selector(".notice:has-text('removed')")
    assert well[1][-1][1:] == ("/api/v1/dlq/purge", {"tokens": ["0-0"]})


def test_a_publication_is_tried_and_a_message_put_by_keyboard_alone(opened: Any, well: Any) -> None:
    visit(opened, well, "try")
    tab_to(opened, "Topic")
    opened.keyboard.type("plant/lima/line/7/temperature")
    tab_to(opened, "Try")
    opened.keyboard.press("Enter")
    opened.wait_for_selector("h2:has-text('line temperature → TELEMETRY.LIMA')")
    visit(opened, well, "queues/TELEMETRY.LIMA")
    opened.wait_for_selector("td button.link")
    tab_to(opened, "Put a test message")
    opened.keyboard.press("Enter")
    tab_to(opened, "Body")
    opened.keyboard.type("21.5")
    tab_to(opened, "Put")
    opened.keyboard.press("Enter")
    opened.wait_for_selector(".notice:has-text('Put with MsgId')")


def test_a_message_is_shown_with_every_header_decoded(opened: Any, well: Any) -> None:
    visit(opened, well, "queues/TELEMETRY.LIMA")
    opened.click("td button.link >> nth=0")
    text = opened.inner_text("dialog[open]")
    for part in ("MQRFH2", "clientId", "line-007", "celsius", "MQPER_PERSISTENT", "site"):
        assert part in text
    opened.keyboard.press("Escape")
    opened.wait_for_selector("dialog", state="detached")


@pytest.mark.skipif(not os.environ.get("MQGATE_SCREENSHOTS"), reason="makes the pictures of the documentation anew")
@pytest.mark.parametrize(
    ("section", "scheme"),
    [
        ("overview", "light"),
        ("overview", "dark"),
        ("rules", "light"),
        ("queues", "light"),
        ("dead-letters", "light"),
        ("users", "light"),
        ("audit", "light"),
    ],
)
def test_pictures_of_the_documentation(opened: Any, well: Any, section: str, scheme: str) -> None:
    opened.emulate_media(color_scheme=scheme)
    visit(opened, well, section)
    opened.wait_for_timeout(4500)
    height = min(
        900, int(opened.evaluate("document.querySelector('main').lastElementChild.getBoundingClientRect().bottom")) + 24
    )
    opened.set_viewport_size({"width": 1280, "height": max(560, height)})
    name = section if scheme == "light" else f"{section}-{scheme}"
    opened.screenshot(path=str(ROOT / "docs" / "images" / f"{name}.png"))


@pytest.mark.skipif(not os.environ.get("MQGATE_SCREENSHOTS"), reason="makes the pictures of the documentation anew")
def test_the_picture_of_the_dialog_by_which_one_signs_in(chromium: Any, well: Any) -> None:
    context = chromium.new_context(viewport={"width": 900, "height": 560})
    page = context.new_page()
    page.goto(well[0])
    page.wait_for_selector("dialog[open] input:focus")
    page.keyboard.type("alice")
    page.screenshot(path=str(ROOT / "docs" / "images" / "sign-in.png"))
    context.close()


def test_a_test_message_is_put_with_its_properties(opened: Any, well: Any) -> None:
    visit(opened, well, "queues/TELEMETRY.LIMA")
    opened.click("summary:text-is('Put a test message')")
    opened.fill("textarea[name=text]", "21.5")
    opened.fill("input[name=properties]", "site=lima line=7")
    opened.click("button:text-is('Put')")
    opened.wait_for_selector(".notice:has-text('Put with MsgId')")
    method, path, body = well[1][-1]
    assert (method, path) == ("POST", "/api/v1/queues/TELEMETRY.LIMA/messages")
    assert body == {"text": "21.5", "format": "MQSTR", "persistent": True, "properties": {"site": "lima", "line": "7"}}


def test_clearing_a_queue_wants_its_name_typed(opened: Any, well: Any) -> None:
    visit(opened, well, "queues/TELEMETRY.LIMA")
    before = len(well[1])
    opened.click("button:text-is('Clear queue')")
    assert opened.is_disabled("dialog button.danger")
    opened.fill("dialog input", "TELEMETRY.LIMA")
    opened.click("dialog button.danger")
    opened.wait_for_selector(".notice:has-text('1,250 messages removed')")
    assert well[1][before:] == [("DELETE", "/api/v1/queues/TELEMETRY.LIMA/messages?confirm=TELEMETRY.LIMA", None)]


def test_dead_letters_are_replayed_by_group_and_purged_only_when_confirmed(opened: Any, well: Any) -> None:
    visit(opened, well, "dead-letters")
    opened.click("button:text-is('MQRC_Q_FULL (2053)')")
    opened.click("button:has-text('Replay all with this reason')")
    opened.wait_for_selector(".notice:has-text('5 of 6 put back')")
    assert well[1][-1][2] == {"tokens": TOKENS}
    opened.check("tbody input[type=checkbox] >> nth=0")
    before = len(well[1])
    opened.click("button:text-is('Purge 1 chosen')")
    opened.click("dialog button:text-is('Cancel')")
    assert len(well[1]) == before
    opened.click("button:text-is('Purge 1 chosen')")
    opened.click("dialog button.danger")
    opened.wait_for_selector(".notice:has-text('removed')")
    assert well[1][-1][1:] == ("/api/v1/dlq/purge", {"tokens": ["0-0"]})


def test_what_is_set_aside_is_shown_and_replayed(opened: Any, well: Any) -> None:
    visit(opened, well, "dead-letters")
    opened.click("button:text-is('Show what is set aside')")
    opened.click("button:text-is('Replay all')")
    opened.wait_for_selector(".notice:has-text('put back')")
    assert well[1][-1][1:] == ("/api/v1/dlq/replay", {"queue": "MQGATE.SET.ASIDE", "tokens": TOKENS})
    opened.click("button:text-is('Show dead letters')")
    opened.select_option("select[name=how]", "rules")
    opened.check("tbody input[type=checkbox] >> nth=0")
    opened.click("button:text-is('Replay 1 chosen')")
    opened.wait_for_selector("button:text-is('Replay all')")
    assert well[1][-1][1:] == ("/api/v1/dlq/replay", {"through_rules": True, "tokens": [TOKENS[0]]})


def test_a_queue_is_defined_altered_inhibited_and_its_messages_searched_and_moved(opened: Any, well: Any) -> None:
    visit(opened, well, "queues")
    opened.click("summary:text-is('Define a queue')")
    opened.fill("input[name=name]", "NEW.QUEUE")
    opened.fill("input[name=descr]", "it's new")
    opened.click("button:text-is('Define')")
    opened.wait_for_selector(".notice:has-text('NEW.QUEUE is defined')")
    assert well[1][-1][2] == {"text": "DEFINE QLOCAL('NEW.QUEUE') MAXDEPTH(5000) DESCR('it''s new')"}
    visit(opened, well, "queues/TELEMETRY.LIMA")
    opened.click("button:text-is('Inhibit put')")
    opened.wait_for_selector(".notice:has-text('inhibit put')")
    assert well[1][-1][2] == {"text": "ALTER QLOCAL('TELEMETRY.LIMA') PUT(DISABLED)"}
    opened.click("summary:text-is('Alter')")
    opened.fill("input[name=MAXDEPTH]", "777")
    opened.click("button:text-is('Alter')")
    opened.wait_for_selector(".notice:has-text('is altered')")
    assert well[1][-1][2] == {"text": "ALTER QLOCAL('TELEMETRY.LIMA') MAXDEPTH(777)"}
    opened.fill("input[placeholder='site=lima']", "site=lima")
    opened.click("button:text-is('Find')")
    opened.wait_for_selector("span[role=status]:has-text('found')")
    assert opened.evaluate("location.hash").endswith("?property=site%3Dlima")
    opened.check("input[aria-label^='Choose '] >> nth=0")
    opened.fill("label:has-text('Move to') input", "OTHER")
    opened.click("button:text-is('Move 1 chosen')")
    opened.wait_for_selector("button:text-is('Move all')")
    assert well[1][-1][1] == "/api/v1/queues/TELEMETRY.LIMA/move"


def test_the_mapping_is_edited_put_into_force_and_taken_back(opened: Any, well: Any) -> None:
    visit(opened, well, "rules")
    opened.click("a:text-is('Edit the mapping')")
    opened.wait_for_selector("span.badge:text-is('as in force')")
    opened.fill("textarea.code", "version: 1\nto_mq: []\n")
    opened.wait_for_selector("span.badge:text-is('can be put into force')")
    assert well[1][-1] == (
        "POST", "/api/v1/mapping/check", {"file": "mappings/plant.yaml", "text": "version: 1\nto_mq: []\n"}
    )  # fmt: skip
    opened.click("button:text-is('Put into force')")
    opened.wait_for_selector(".notice:has-text('in force')")
    assert well[1][-1][:2] == ("PUT", "/api/v1/mapping")
    opened.click("button:text-is('Take back')")
    opened.click("dialog button.danger")
    opened.wait_for_selector(".notice:has-text('taken back')")
    assert well[1][-1][1:] == ("/api/v1/mapping/undo", {"number": 3})


def test_a_message_is_downloaded(opened: Any, well: Any) -> None:
    visit(opened, well, "queues/TELEMETRY.LIMA")
    opened.click("td button.link >> nth=0")
    with opened.expect_download() as begun:
        opened.click("button:text-is('Download body')")
    assert begun.value.suggested_filename.endswith(".txt")
    assert "celsius" in begun.value.path().read_text()


def test_try_out_shows_the_queue_the_message_and_why_not_the_others(opened: Any, well: Any) -> None:
    visit(opened, well, "try")
    opened.fill("input[name=topic]", "plant/lima/line/7/temperature")
    opened.fill("textarea[name=text]", "21.5")
    opened.click("button:text-is('Try')")
    opened.wait_for_selector("h2:has-text('line temperature → TELEMETRY.LIMA')")
    assert "it goes from a queue to devices" in opened.inner_text("main")
    assert "There is no queue TELEMETRY.LIMA (2085)" in opened.inner_text("main")
    assert well[1][-1][2] == {"topic": "plant/lima/line/7/temperature", "text": "21.5", "qos": 1}


def test_a_trace_shows_what_happens_and_what_it_left_out(opened: Any, well: Any) -> None:
    visit(opened, well, "trace/line-007")
    opened.click("button:text-is('Start')")
    opened.wait_for_selector(".log p:has-text('3 events were left out')")
    assert "line-007 PUBLISH topic=plant/lima/line/7/alarm qos=1 packet=12" in opened.inner_text(".log")
    opened.fill("input[name=client_id]", "line-007")
    opened.fill("input[name=packet_id]", "12")
    opened.click("button:text-is('Find')")
    opened.wait_for_selector(f"td:has-text('{page_answers.MSG_ID}')")


def test_gateways_are_listed_with_their_leases_and_lead_to_their_pages(opened: Any, well: Any) -> None:
    visit(opened, well, "gateways")
    opened.wait_for_selector("p:has-text('3 gateways, 1,429 connections, 1,772 sessions')")
    assert opened.get_attribute("a:text-is('gate-2')", "href") == "https://gate-2.plant.example:9160/admin/"
    assert opened.locator("a:text-is('gate-1')").count() == 0, "one is there already"
    row = opened.locator("tr", has_text="c1b2c3d4e5f60718293a4b5c")
    assert "lease not renewed" in row.inner_text()
    assert "9\u00a0of\u00a010\u00a0s" in row.inner_text()


def test_a_client_is_disconnected_and_purged(opened: Any, well: Any) -> None:
    visit(opened, well, "clients/line-001")
    opened.wait_for_selector("td:has-text('staged')")
    opened.click("button:text-is('Disconnect')")
    opened.wait_for_selector(".notice:has-text('its session stays')")
    opened.click("button:text-is('Purge session')")
    opened.click("dialog button.danger")
    opened.wait_for_selector(".notice:has-text('is gone')")
    assert [path for _, path, _ in well[1][-2:]] == ["/api/v1/clients/line-001/connection", "/api/v1/clients/line-001"]


def test_tables_keep_focus_while_they_refresh_and_sort_by_heading(opened: Any, well: Any) -> None:
    visit(opened, well, "queues")
    opened.click("th button:text-is('Depth')")
    assert opened.get_attribute("th:has-text('Depth')", "aria-sort") == "descending"
    opened.wait_for_selector("tbody tr:first-child td:first-child:has-text('TELEMETRY.CUSCO')")
    opened.focus("tbody tr:first-child a")
    opened.wait_for_timeout(4500)
    assert opened.evaluate("document.activeElement.textContent") == "TELEMETRY.CUSCO"
