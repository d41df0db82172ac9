"""Who may import whom: the rules of ARCHITECTURE.md, read from the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODEMOD = ROOT / "codemod" / "actor_wg_codemod"
LINT = ROOT / "lint_plugin" / "flake8_actor_wg"
ENGINE = ROOT / "reference_engine" / "actor_wg_engine"
HEAVY = {"torch", "ray"}


def imports(path: Path) -> Iterator[str]:
    """The dotted names of everything that a file imports, wherever it does."""
    package = path.relative_to(path.parents[len(path.parts) - len(ROOT.parts) - 2]).with_suffix("")
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.parts[: len(package.parts) - node.level]
                base = ".".join([*parts, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@pytest.mark.parametrize("name", ["renames", "model"])
def test_the_tables_import_nothing_of_ours(name: str) -> None:
    found = [n for n in imports(CODEMOD / f"{name}.py") if n.startswith("actor_wg")]
    assert found == []


@pytest.mark.parametrize("path", [*sources(CODEMOD), *sources(LINT)], ids=lambda p: p.stem)
def test_migrating_and_linting_need_no_torch_no_ray_no_engine(path: Path) -> None:
    tops = {name.partition(".")[0] for name in imports(path)}
    allowed = {"actor_wg_engine"} if path.name in ("cli.py", "verification.py") else set()
    assert not tops & HEAVY
    assert "actor_wg_engine" not in tops - allowed


@pytest.mark.parametrize("path", sources(ENGINE), ids=lambda p: p.stem)
def test_the_engine_does_not_import_the_codemod(path: Path) -> None:
    assert not {n for n in imports(path) if n.startswith(("actor_wg_codemod", "flake8"))}


@pytest.mark.parametrize("path", sources(ENGINE / "transports"), ids=lambda p: p.stem)
def test_one_transport_never_imports_another(path: Path) -> None:
    others = {p.stem for p in sources(ENGINE / "transports")} - {path.stem, "__init__"}
    found = {n for n in imports(path) if n.startswith("actor_wg_engine.transports.")}
    assert not {n.split(".")[2] for n in found} & others


def test_only_the_table_names_verls_classes() -> None:
    words = ("CheckpointEngineManager", "KIMICheckpointEngine", "NCCLCheckpointEngine")
    for path in sources(CODEMOD):
        if path.name in ("renames.py", "signatures.py"):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            docstring = isinstance(node, ast.Constant) and "\n" in str(node.value)
            if isinstance(node, ast.Constant) and node.value in words and not docstring:
                raise AssertionError(f"{path.name}:{node.lineno} names {node.value}")


@pytest.mark.parametrize("module", ["actor_wg_codemod.cli", "flake8_actor_wg.plugin"])
def test_a_start_imports_neither_libcst_nor_flake8_nor_yaml(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"libcst", "yaml", "torch", "ray"}
