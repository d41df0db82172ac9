"""The table of verl 0.9's signatures against the wheels themselves, read with ast."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from actor_wg_codemod import renames, signatures
from actor_wg_codemod.signatures import CALLS, RELEASES, SIGNATURES, Signature, VerlCall


def classes(path: Path) -> dict[str, ast.ClassDef]:
    tree = ast.parse(path.read_bytes())
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def shown(arguments: ast.arguments) -> str:
    """The parameters without annotations, every default an ellipsis."""
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    ellipsis = ast.Constant(...)
    arguments.defaults = [ellipsis for _ in arguments.defaults]
    arguments.kw_defaults = [d and ellipsis for d in arguments.kw_defaults]
    return ast.unparse(arguments)


def parameters(owner: ast.ClassDef, one: Signature) -> str:
    if one.fields:
        fields = [node for node in owner.body if isinstance(node, ast.AnnAssign)]
        assert all(field.value is None for field in fields)
        return ", ".join(["self", *(ast.unparse(field.target) for field in fields)])
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == one.method:
            return shown(node.args)
    return ""


def calls(tree: ast.AST, one: VerlCall) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(one.callee):
            yield node


def given(call: ast.Call, one: VerlCall) -> tuple[int, tuple[str, ...]]:
    words = tuple(sorted(k.arg for k in call.keywords if k.arg is not None))
    skip = 1 if one.callee.endswith("Registry.new") else 0  # the backend's name is the registry's
    return len(call.args) - skip, words


def test_a_release_has_one_signature_for_each_method():
    for release in RELEASES:
        keys = [(s.owner, s.method) for s in SIGNATURES if s.holds_in(release)]
        assert len(keys) == len(set(keys))


@pytest.mark.network
@pytest.mark.timeout(300)
@pytest.mark.parametrize("release", RELEASES)
def test_the_wheel_has_every_signature(release, wheel):
    for one in SIGNATURES:
        if one.holds_in(release):
            owner = classes(wheel(release) / "verl" / one.file)[one.owner]
            assert parameters(owner, one) == one.parameters, (one.owner, one.method)


@pytest.mark.network
@pytest.mark.timeout(300)
@pytest.mark.parametrize("release", RELEASES)
def test_verl_calls_overrides_as_the_table_says_and_no_earlier(release, wheel):
    for one in CALLS:
        tree = ast.parse((wheel(release) / "verl" / one.file).read_bytes())
        expected = (one.positional, tuple(sorted(one.keywords)))
        found = {given(call, one) for call in calls(tree, one)}
        assert (expected in found) == (one.since <= release), (one, found)


@pytest.mark.network
@pytest.mark.timeout(300)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("owner", [signatures.ROLLOUT, signatures.REPLICA, signatures.NCCL])
def test_a_family_has_all_of_verls_own_subclasses(release, owner, wheel):
    expected = signatures.FAMILIES.get(owner, signatures.NCCL_FAMILY)
    bases: dict[str, set[str]] = {}
    for path in (wheel(release) / "verl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef):
                names = {ast.unparse(b).rpartition(".")[2] for b in node.bases}
                bases.setdefault(node.name, set()).update(names)
    found = {owner}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    assert found == expected


@pytest.mark.network
@pytest.mark.timeout(300)
def test_what_the_nccl_messages_say_of_the_latest_release_is_so(wheel):
    path = wheel(signatures.LATEST) / "verl" / "checkpoint_engine" / "nccl_checkpoint_engine.py"
    found = classes(path)
    topology = ast.unparse(found[signatures.NCCL]).partition("def build_topology")[2]
    assert "metadata[0].master" in topology
    assert f"'{signatures.SENDERS}'" in topology
    fields = [
        n.target for n in found[signatures.WORKER_METADATA].body if isinstance(n, ast.AnnAssign)
    ]
    assert [ast.unparse(field) for field in fields] == ["node_id", "master"]


def test_the_table_uses_the_names_after_the_rename():
    words = set(renames.FORWARD.table)
    for one in SIGNATURES:
        assert not words & {a.arg for a in ast.walk(one.arguments) if isinstance(a, ast.arg)}
