"""The layout of docs/architecture.md, enforced: who may import whom, and what may be used where."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "tessera"
FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(PACKAGE)) for path in FILES]

LEAVES = ("dtypes", "errors", "config", "llvm", "llvmtext")

# Module prefix -> the prefixes that it may import; the longest prefix that matches holds. "" is everything.
LAYERS: dict[str, tuple[str, ...]] = {
    "": (),  # a module that has no place yet may import nothing: give it one here and in docs/architecture.md
    **dict.fromkeys(LEAVES, LEAVES),
    "ir": (*LEAVES, "ir"),
    "frontend": (*LEAVES, "ir", "frontend"),
    "targets": (*LEAVES, "ir", "targets"),
    "runtime": (*LEAVES, "runtime"),
    "runtime.reference": (*LEAVES, "runtime", "ir"),
    "runtime.simulator": (*LEAVES, "runtime.simulator"),
    "jit": ("",),
    "cli": ("",),
    "__init__": ("",),
}

# Packages that one module alone may import, so that what they mean is in one place.
ONLY_IN = {"llvmlite": "llvm", "hip": "runtime.hip_api", "rocm": "runtime.hip_api"}

# Modules and names that don't exist on every platform.
UNIX_ONLY_MODULES = {"fcntl", "grp", "posix", "pwd", "resource", "termios", "tty", "pty", "syslog"}
UNIX_ONLY_NAMES = {
    "fork",
    "sched_getaffinity",
    "sched_setaffinity",
    "uname",
    "geteuid",
    "getuid",
    "mkfifo",
    "memfd_create",
    "SIGALRM",
    "SIGKILL",
}

SOFT_LINES, HARD_LINES = 600, 1000


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def within(module: str, prefix: str) -> bool:
    return prefix == "" or module == prefix or module.startswith(prefix + ".")


def allowed(module: str) -> tuple[str, ...]:
    return LAYERS[max((prefix for prefix in LAYERS if within(module, prefix)), key=len)]


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, module) of every import, also inside functions and under TYPE_CHECKING; Tessera's own without the leading `tessera.`,
    with a dot in front. `from . import x` counts as an import of `x`."""
    package = path.relative_to(PACKAGE).parent.parts
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = (*package[: len(package) - node.level + 1], *(node.module or "").split("."))
                name = ".".join(("tessera", *filter(None, base)))
            else:
                name = node.module or ""
            if name == "tessera" or (PACKAGE / Path(*name.split(".")[1:])).is_dir():
                # A name from a package may be a module of it.
                for alias in node.names:
                    parts = [*name.split(".")[1:], alias.name]
                    is_module = (PACKAGE / Path(*parts)).with_suffix(".py").exists() or (PACKAGE / Path(*parts)).is_dir()
                    found.append((node.lineno, f"{name}.{alias.name}" if is_module else name))
            else:
                found.append((node.lineno, name))
    return [(line, "." + name.removeprefix("tessera").lstrip(".") if name.split(".")[0] == "tessera" else name) for line, name in found]


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_imports_point_one_way(path: Path) -> None:
    module = module_name(path)
    bad = [
        f"{path.name}:{line} imports tessera{name}"
        for line, name in imports(path)
        if name.startswith(".") and not any(within(name[1:] or "__init__", prefix) for prefix in allowed(module))
    ]
    assert not bad, f"{module} may import {', '.join(allowed(module)) or 'nothing of Tessera (give it a place in LAYERS)'}: {bad}"


def test_packages_with_one_user() -> None:
    for path in FILES:
        for line, name in imports(path):
            owner = ONLY_IN.get(name.split(".")[0])
            assert owner is None or owner == module_name(path), f"{path.name}:{line}: {name} is for tessera.{owner} alone"


def test_runs_on_every_platform() -> None:
    for path in FILES:
        for line, name in imports(path):
            assert name.split(".")[0] not in UNIX_ONLY_MODULES, f"{path.name}:{line}: {name} is not on every platform"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("os", "signal", "posix"):
                assert node.attr not in UNIX_ONLY_NAMES, f"{path.name}:{node.lineno}: {node.value.id}.{node.attr} is not on every platform"


def test_environment_is_read_in_config_alone() -> None:
    for path in FILES:
        if path.name == "config.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                assert node.attr not in ("environ", "getenv"), f"{path.name}:{node.lineno}: environment variables belong to config.py"


def test_files_stay_small_and_say_what_they_are() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        assert lines <= HARD_LINES, f"{path.name} has {lines} lines: split it"
        if lines > SOFT_LINES:
            warnings.warn(f"{path.name} has {lines} lines; the aim is {SOFT_LINES}", stacklevel=1)
        assert not text.strip() or ast.get_docstring(ast.parse(text)), f"{path.name} has no module docstring"


def test_the_rules_notice_a_breach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of imports sees every form of one."""
    package = tmp_path / "tessera"
    (package / "runtime" / "simulator").mkdir(parents=True)
    (package / "targets").mkdir()
    (package / "targets" / "matrix.py").touch()
    source = package / "runtime" / "simulator" / "lifter.py"
    source.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from ...targets import matrix\n"
        "def f():\n    import tessera.targets.matrix\n    from tessera import targets\n    from .. import artifact\n"
    )
    monkeypatch.setattr("test_imports.PACKAGE", package)
    assert module_name(source) == "runtime.simulator.lifter"
    assert imports(source)[0] == (1, "typing")
    assert {name for _, name in imports(source)[1:]} == {".targets.matrix", ".targets", ".runtime"}
    assert not any(within(name[1:], prefix) for _, name in imports(source)[1:] for prefix in LAYERS["runtime.simulator"])
