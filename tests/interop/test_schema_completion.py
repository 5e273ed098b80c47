"""The JSON Schemas in an editor: the YAML language server completes keys and values, shows meanings, marks mistakes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.config.schema import settings_schema
from gateway.rules.schema import mapping_schema

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-schema")]  # one worker: one npm fills the cache

VERSION = "1.25.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mqgate" / f"yaml-language-server-{VERSION}"


@pytest.fixture(scope="module")
def server_script():
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    script = CACHE / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"
    if not script.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(CACHE),
            f"yaml-language-server@{VERSION}",
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        if made.returncode:
            pytest.skip(f"npm cannot install the language server: {made.stderr[-200:]}")
    return script


class Editor:
    """As much of an editor as is needed: opens one text and asks about places in it."""

    def __init__(self, script):
        self.process = subprocess.Popen(["node", str(script), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.count = 0
        self.diagnostics = {}
        self.request("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        self.send("initialized", {})

    def send(self, method, params, **more):
        text = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
        self.process.stdin.flush()

    def receive(self):
        length = 0
        while (line := self.process.stdout.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        message = json.loads(self.process.stdout.read(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self.diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "method" in message and "id" in message:  # the server asks for configuration: there is none
            items = message["params"].get("items", []) if isinstance(message.get("params"), dict) else []
            answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": [{} for _ in items]}).encode()
            self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer))
            self.process.stdin.flush()
        return message

    def request(self, method, params):
        self.count += 1
        self.send(method, params, id=self.count)
        while True:
            message = self.receive()
            if message.get("id") == self.count and "method" not in message:
                return message.get("result")

    def open(self, uri, text):
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self.send("textDocument/didOpen", {"textDocument": document})

    def at(self, method, uri, line, character):
        position = {"line": line, "character": character}
        return self.request(f"textDocument/{method}", {"textDocument": {"uri": uri}, "position": position})

    def problems(self, uri):
        while uri not in self.diagnostics:
            self.receive()
        return [one["message"] for one in self.diagnostics[uri]]

    def close(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def schemas(tmp_path_factory):
    directory = tmp_path_factory.mktemp("schemas")
    (directory / "mapping.json").write_text(json.dumps(mapping_schema()))
    (directory / "settings.json").write_text(json.dumps(settings_schema()))
    return directory


@pytest.fixture(scope="module")
def editor(server_script):
    made = Editor(server_script)
    yield made
    made.close()


@pytest.fixture
def show(editor, schemas, request):
    def opened(kind, text):
        uri = f"file:///{request.node.name}.yaml"
        editor.open(uri, f"# yaml-language-server: $schema={(schemas / kind).as_uri()}\n{text}")
        return uri

    return opened


def labels(found):
    return {item["label"] for item in (found["items"] if isinstance(found, dict) else found or [])}


RULE = "to_mq:\n  - name: a\n    topic: a/b\n    queue: Q\n"


def test_keys_of_a_rule_are_completed(editor, show):
    uri = show("mapping.json", RULE + "    \n")
    assert {"descriptor", "on_failure", "continue", "properties", "too_long"} <= labels(
        editor.at("completion", uri, 5, 4)
    )


def test_values_are_completed(editor, show):
    uri = show("mapping.json", RULE + "    too_long: \n    on_failure: {then: }\n")
    assert {"dead_letter", "segment", "reject"} <= labels(editor.at("completion", uri, 5, 14))


def test_the_meaning_of_a_key_is_shown(editor, show):
    uri = show("mapping.json", RULE + "    group_by: x\n")
    hover = editor.at("hover", uri, 5, 6)
    assert "same GroupId" in json.dumps(hover)


def test_mistakes_are_marked(editor, show):
    uri = show("mapping.json", RULE + "    quue: Q\n    when: {qos: 7}\n")
    found = "\n".join(editor.problems(uri))
    assert "quue" in found
    assert "7" in found or "maximum" in found.lower() or "Incorrect type" in found or "range" in found.lower()


@pytest.mark.parametrize("path", sorted(Path("mappings").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_mappings_have_no_mistake(editor, show, path):
    assert editor.problems(show("mapping.json", path.read_text(encoding="utf-8"))) == []


def test_keys_of_the_settings_are_completed(editor, show):
    uri = show("settings.json", "mqtt:\n  \nlisteners:\n  - name: a\n    port: 1883\n    \n")
    assert {"max_packet", "max_qos", "retry_interval"} <= labels(editor.at("completion", uri, 2, 2))
    assert {"tls", "websocket", "proxy_protocol"} <= labels(editor.at("completion", uri, 6, 4))
