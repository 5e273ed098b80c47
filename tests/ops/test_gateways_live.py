"""The page's view of several gateways, with two that run on one queue manager: in the long form, and for the picture of
the documentation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from gateways import RunningGateway
from gateways_behind_balancer import GatewaysBehindBalancer
from ops_machine import BROWSER_FLAGS, CACHE, ROOT, browser_path
from patient_device import Device

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; tests/run installs it")
pytestmark = [
    pytest.mark.ops,
    pytest.mark.mqi,
    pytest.mark.xdist_group("chromium"),
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not {"MQGATE_LONG", "MQGATE_SCREENSHOTS"} & set(os.environ),
        reason="long runs and pictures only: three processes",
    ),
]
TOKEN = "operator-token-of-the-tests"
SETTINGS = """
admin: {token_file: admin.token}
process: {name: NAME}
mappings: [map.yaml]
"""
MAPPING = 'version: 1\nto_mq: [{name: plant, topic: "plant/#", queue: APP.Q}]\n'
DEVICES = (9, 5)
PICTURES = ROOT / "docs" / "images" if os.environ.get("MQGATE_SCREENSHOTS") else CACHE / "shots"


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[list[RunningGateway]]:
    (tmp_path / "admin.token").write_text(TOKEN + "\n")
    (tmp_path / "map.yaml").write_text(MAPPING)
    made = GatewaysBehindBalancer(tmp_path, settings=SETTINGS, count=len(DEVICES))
    for number, gateway in enumerate(made.gateways, 1):
        gateway.settings = gateway.settings.replace("NAME", f"gate-{number}")
    try:
        yield made.start().gateways
    finally:
        made.close()


def test_both_are_shown_and_each_leads_to_the_other(gateways: list[RunningGateway]) -> None:
    with ExitStack() as stack:
        for gateway, count in zip(gateways, DEVICES, strict=True):
            for number in range(count):
                device = Device("127.0.0.1", gateway.port, f"{gateway.directory.name}-{number}", timeout=60)
                stack.enter_context(device).connect()
        driver = stack.enter_context(playwright.sync_playwright())
        browser = driver.chromium.launch(executable_path=browser_path(), args=BROWSER_FLAGS)
        page = signed_in(browser)
        page.goto(f"http://127.0.0.1:{gateways[0].admin}/admin/#/gateways")
        page.wait_for_selector(f"p:has-text('2 gateways, {sum(DEVICES)} connections')")
        page.wait_for_selector("tr:has-text('gate-1') .badge:has-text('this one')")
        page.wait_for_selector("tr:has-text('gate-2') .badge:has-text('running')")
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(PICTURES / "gateways.png"))
        page.click("a:text-is('gate-2')")
        page.wait_for_selector("header .badge:has-text('ready')")
        assert f":{gateways[1].admin}/admin/" in page.url
        browser.close()


def signed_in(browser: Any) -> Any:
    context = browser.new_context(viewport={"width": 1280, "height": 560})
    context.set_default_timeout(60_000)
    context.add_init_script(f"sessionStorage.setItem('mqgate.token', '{TOKEN}')")
    return context.new_page()
