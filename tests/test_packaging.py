"""The package: pure Python, complete, and what its papers say."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
FILES = [path for path in (ROOT / "tessera").rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def test_a_wheel_would_be_pure_python_and_complete() -> None:
    """What setuptools would pack: every file is one that its settings include, every folder a package."""
    assert not (ROOT / "setup.py").exists()
    assert "ext-modules" not in PROJECT
    assert 'include = ["tessera*"]' in PROJECT
    assert 'tessera = ["py.typed"]' in PROJECT
    assert {path.suffix for path in FILES} == {".py", ".typed"}
    for folder in {path.parent for path in FILES}:
        assert (folder / "__init__.py").exists(), f"{folder.relative_to(ROOT)} is no package: a wheel would leave it out"


def test_dependencies_are_those_that_are_imported() -> None:
    """Nothing is imported that wouldn't be installed."""
    imported = {"elftools": "pyelftools", "hip": "hip-python", "typing_extensions": "typing-extensions"}
    listed = set(re.findall(r'"([\w-]+)[>=<]', PROJECT[PROJECT.index("dependencies = [") : PROJECT.index("[project.optional")]))
    for path in FILES:
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"tessera"}:
                assert imported.get(name, name) in listed, f"{path.name} imports {name}"


def test_the_licence() -> None:
    assert 'license = "Apache-2.0"' in PROJECT
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_the_version_has_its_changes() -> None:
    version = re.search(r'^version = "(.*)"', PROJECT, re.MULTILINE)
    assert version
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
