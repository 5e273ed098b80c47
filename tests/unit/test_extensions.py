"""The compiled extensions: what they are built from, that an old one is not loaded, and that their stubs are true."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from gateway.cli import extensions
from gateway.cli.doctor import doctor
from gateway.cli.main import main
from gateway.cli.version import version

ROOT = Path(__file__).parents[2]


def install_script() -> ModuleType:
    """deploy/install.py, which reads pyproject.toml for the scripts."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "deploy" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INSTALL = install_script()
FILES: dict[str, list[str]] = INSTALL.extensions()
EACH = pytest.mark.parametrize("module", sorted(FILES))


def built(module: str) -> Path:
    """The extension's file."""
    try:
        file = importlib.import_module(module).__file__
    except ModuleNotFoundError:
        assert not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"
        pytest.skip("no compiler where the gateway was installed")
    assert file is not None
    return Path(file)


def test_every_c_file_is_named_in_pyproject() -> None:
    library = ROOT / "gateway" / "mqi" / "c"  # built by `mqgate mqi build`
    on_disk = {file for kind in ("*.c", "*.h") for file in (ROOT / "gateway").rglob(kind)}
    named = {ROOT / file for files in FILES.values() for file in files}
    assert {file for file in on_disk if library not in file.parents} == named


@EACH
def test_an_extension_names_every_header_it_includes(module: str) -> None:
    named = {(ROOT / file).resolve() for file in FILES[module]}
    for file in named:
        text = file.read_text()
        for header in re.findall(r'^#\s*include "(.*)"', text, re.MULTILINE):
            assert (file.parent / header).resolve() in named, f"{header} of {file}"
        assert "BUILT_FROM_THIS_FILE;" in text, f"{file} would not be compared when the extension is loaded"


def test_the_list_of_extensions_is_that_of_pyproject() -> None:
    assert extensions.EXTENSIONS.keys() == FILES.keys()


def test_an_installation_is_repeated_for_every_file_it_was_built_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"pyproject.toml", "deploy/requirements.lock", "deploy/install.py"}.union(*FILES.values())
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    monkeypatch.setattr(INSTALL, "ROOT", tmp_path)
    before = INSTALL.digest(["test", "ops"])
    assert INSTALL.digest(["ops,test"]) == before
    seen = {before, INSTALL.digest(["test"])}
    for file in files:
        with (tmp_path / file).open("a") as changed:
            changed.write("\n")
        seen.add(INSTALL.digest(["test", "ops"]))
    assert len(seen) == len(files) + 2
    for script in ("tests/run", "deploy/quickstart"):
        assert "deploy/install.py --digest" in (ROOT / script).read_text()


def load(module: str, file: Path) -> str:
    """What an import of the file as this module says; nothing when it works."""
    program = (
        "import sys; from importlib.util import module_from_spec, spec_from_file_location as at\n"
        f"spec = at({module!r}, {str(file)!r})\n"
        "try: spec.loader.exec_module(module_from_spec(spec))\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@EACH
def test_an_extension_that_was_built_from_other_sources_is_not_loaded(module: str, tmp_path: Path) -> None:
    file = built(module)
    copy = tmp_path / file.relative_to(ROOT)
    for source in (file, *(ROOT / name for name in FILES[module])):
        (tmp_path / source.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tmp_path / source.relative_to(ROOT))
    assert load(module, copy) == ""
    for name in FILES[module]:
        source = tmp_path / name
        text = source.read_bytes()
        for other in (text + b"\n", text[:-1], b"/" + text[1:-1] + b" "):
            source.write_bytes(other)
            said = load(module, copy)
            assert said.startswith(str(file.relative_to(ROOT)))
            assert said.endswith(f"another {source.name}: type python deploy/install.py --editable")
        source.unlink()
        assert load(module, copy) == "", "sources need not be installed"


def test_commands_say_that_an_extension_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "gateway/net/_wire.so was built from another _wire.c"

    def import_old(module: str) -> ModuleType:
        raise ImportError(text, path="gateway/net/_wire.so")

    monkeypatch.setattr(extensions, "import_module", import_old)
    said = CliRunner().invoke(doctor, [])
    assert (said.exit_code, said.output.splitlines()[-1]) == (1, f"WRONG    compiled parts: {text}")
    assert CliRunner().invoke(version, []).output.splitlines()[1:] == [text]
    assert '"compiled": false' in CliRunner().invoke(version, ["--json"]).output
    monkeypatch.setattr(sys.modules["gateway.cli.main"], "import_module", import_old)
    said = CliRunner().invoke(main, ["run"])
    assert (said.exit_code, said.output) == (1, f"Error: {text}\n")


def arguments(node: ast.FunctionDef) -> list[str]:
    """The names of a stub's parameters."""
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args) if one.arg != "self"]


def documented(function: object) -> list[str] | None:
    """The names of the parameters in a docstring that begins with `name(a, b, /)`; None where it does not."""
    found = re.match(r"\w+\((.*?)\)", (inspect.getdoc(function) or "").replace("\n", " "))
    return None if found is None else [one for one in re.split(r",\s*", found[1]) if one not in {"", "/"}]


def check_stub(body: list[ast.stmt], real: object, where: str) -> None:
    """The same public names; of functions whose docstrings give parameters, the same parameters."""
    stubs = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    fields = {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    aliases = {name for name in fields if name[0].isupper()}  # `Run: TypeAlias = ...`, for the type checker alone
    imported = {alias.asname or alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    bases = real.__mro__[1:] if isinstance(real, type) else ()
    own = {name for name in vars(real) if not name.startswith("_") and not any(hasattr(base, name) for base in bases)}
    stubbed = {name for name in stubs if not name.startswith("_")} | (fields - aliases) | (imported & own)
    assert stubbed == own, where
    for name, stub in stubs.items():
        if isinstance(stub, ast.ClassDef):
            check_stub(stub.body, vars(real)[name], f"{where}.{name}")
        elif name != "__new__" and stub.args.vararg is None:
            told = documented(vars(real)[name])
            assert told is None or arguments(stub) == told, f"{where}.{name}"


@EACH
def test_the_stub_is_that_of_the_module(module: str) -> None:
    file = built(module)
    stub = file.with_name(module.rpartition(".")[2] + ".pyi")
    check_stub(ast.parse(stub.read_text()).body, importlib.import_module(module), module)
