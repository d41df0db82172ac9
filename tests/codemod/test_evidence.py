"""What YAML, shell and project metadata prove: classes named as managers, mentions of verl."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actor_wg_codemod.documents.settings_evidence import (
    is_metadata,
    is_shell,
    manager_classes,
    mentions_verl,
)

KEY = "actor_rollout_ref.rollout.checkpoint_manager_class"
NAME = "checkpoint_manager_class"

SHELL_NOTHING = {
    "comment": f"# {KEY}=a.b.C",
    "comment behind": f"run x=1 # {KEY}=a.b.C",
    "comment among continued lines": f"run \\\n  x=1 \\\n  # {KEY}=a.b.C",
    "deleted": f"run ~{KEY}=a.b.C",
    "null": f"run {KEY}=null",
    "no dots": f"run {KEY}=DiskSync",
    "unknown variable": f"run {KEY}=$1",
    "compared variable": f'[ "${NAME}" = "a.b.C" ]',
    "longer name": f"run {KEY}_name=a.b.C my_{NAME}=a.b.C",
    "a file": f"run {KEY}=a/b/C.py",
    "a variable that calls itself": f"X=$X\nrun {KEY}=$X",
}
SHELL = {
    "override": f"run {KEY}=a.b.C",
    "added": f"run +{KEY}=a.b.C",
    "forced": f"run ++{KEY}=a.b.C x=1",
    "bare key": f"run {NAME}=a.b.C",
    "option": f"run --{NAME}=a.b.C",
    "continued": f"run x=1 \\\n    {KEY}=a.b.C \\\n    y=2",
    "double quotes": f'run "{KEY}=a.b.C"',
    "single quotes": f"run '{KEY}=a.b.C'",
    "quoted value": f"run {KEY}='a.b.C'",
    "escaped quotes": f'run "{KEY}=\\"a.b.C\\""',
    "array": f"ARGS=(\n  x=1\n  {KEY}=a.b.C\n)\nrun ${{ARGS[@]}}",
    "variable": f"CLS=a.b.C\nrun {KEY}=$CLS",
    "exported variable": f'export CLS="a.b.C"\nrun {KEY}="${{CLS}}"',
    "quotes around the variable only": f"CLS=a.b.C\nrun '{KEY}='\"$CLS\"",
    "default of a variable": f"run {KEY}=${{CLS:-a.b.C}}",
    "variable with a default of its own": f"CLS=${{CLS:-a.b.C}}\nrun {KEY}=$CLS",
    "variable in front": f"PKG=a.b\nrun {KEY}=${{PKG}}.C",
    "variable of a variable": f"PKG=a.b\nCLS=$PKG.C\nrun {KEY}=$CLS",
    "here document": f"cat > x.yaml <<EOF\nrollout:\n  {NAME}: a.b.C\nEOF",
    "hash inside a word": f"run x=a#b {KEY}=a.b.C",
    "hash in quotes": f"run x=' # ' {KEY}=a.b.C",
}


@pytest.mark.parametrize("script", SHELL_NOTHING.values(), ids=SHELL_NOTHING)
def test_scripts_that_set_no_class(script):
    assert manager_classes("run.sh", script) == set()


@pytest.mark.parametrize("script", SHELL.values(), ids=SHELL)
def test_scripts_that_set_a_class(script):
    assert manager_classes("run.sh", script) == {"a.b.C"}
    assert manager_classes("run", f"#!/usr/bin/env bash\n{script}") == {"a.b.C"}
    assert manager_classes("run.sh", script.replace("\n", "\r\n")) == {"a.b.C"}
    assert manager_classes("run.md", script) == set()


def test_every_branch_of_a_script_counts():
    script = f"if x; then\n  CLS=a.b.C\nelse\n  CLS=d.e.F\nfi\nrun {KEY}=$CLS {KEY}=g.H"
    assert manager_classes("run.sh", script) == {"a.b.C", "d.e.F", "g.H"}


YAML_NOTHING = {
    "comment": f"# {NAME}: a.b.C",
    "comment behind": f"a: 1 # {NAME}: a.b.C",
    "null": f"{NAME}: null",
    "no dots": f"{NAME}: DiskSync",
    "interpolation": f"{NAME}: ${{a.b}}",
    "a mapping": f"{NAME}:\n  a.b: C",
    "longer key": f"{NAME}_name: a.b.C",
    "comment in a block scalar": f"a: |\n  x: 1\n  # {NAME}: a.b.C",
    "comment in a script": f"args:\n- |\n  # {KEY}=a.b.C\n  run",
    "comment in a template": f"{{{{ if x }}}}\n# {NAME}: a.b.C\n",
}
YAML = {
    "block": f"rollout:\n  name: x\n  {NAME}: a.b.C  # {NAME}: d.E",
    "flow": f"rollout: {{name: x, {NAME}: a.b.C}}",
    "quotes": f"rollout:\n  '{NAME}': \"a.b.C\"",
    "next line": f"{NAME}:\n  a.b.C",
    "dotted key": f"{KEY}: a.b.C",
    "anchor": f"x: &c a.b.C\n{NAME}: *c",
    "list of overrides": f"overrides:\n- x=1\n- {KEY}=a.b.C",
    "flow list of overrides": f'args: ["{KEY}=a.b.C","x=1"]',
    "script": f"args:\n- |\n  run x=1 \\\n    +{KEY}=a.b.C \\\n    y=2",
    "block scalar": f"kind: ConfigMap\ndata:\n  a.yaml: |\n    rollout:\n      {NAME}: a.b.C\n",
    "folded script": f"cmd: >-\n  run x=1\n  {KEY}='a.b.C'\n",
    "template": f"{{{{ if x }}}}\n{NAME}: a.b.C\n{{{{ end }}}}",
    "second document": f"a: 1\n---\n{NAME}: a.b.C",
}


@pytest.mark.parametrize("text", YAML_NOTHING.values(), ids=YAML_NOTHING)
def test_yaml_that_sets_no_class(text):
    assert manager_classes("a.yaml", text) == set()


@pytest.mark.parametrize("text", YAML.values(), ids=YAML)
def test_yaml_that_sets_a_class(text):
    assert manager_classes("a.yaml", text) == {"a.b.C"}
    assert manager_classes("conf/a.yml", text.replace("\n", "\r\n")) == {"a.b.C"}


MENTIONS = [
    ("requirements.txt", "verl==0.8.0", True),
    ("requirements/gpu.txt", "verl", True),
    ("dev-requirements.in", "git+ssh://x/verl.git@main#egg=verl", True),
    ("requirements.txt", "# verl", False),
    ("requirements.txt", "acme_verl\nverlet\nverl2\nmyverl", False),
    ("requirements.txt", "torch  # for verl", False),
    ("notes.txt", "verl", False),
    ("README.md", "verl", False),
    ("pyproject.toml", 'dependencies = ["verl>=0.9"]', True),
    ("pyproject.toml", '# verl\nname = "acme_verl"', False),
    ("setup.cfg", "install_requires =\n  verl", True),
    ("uv.lock", 'name = "verl"', True),
    ("setup.py", '"""For verl."""\nsetup(install_requires=["verl"])', True),
    ("setup.py", '"""For verl."""\n# verl\nsetup(name="acme_verl")', False),
    ("setup.py", "setup(verl", False),
    ("run.sh", "python -m verl.trainer.main_ppo", True),
    ("run.sh", "# python -m verl.trainer.main_ppo", False),
    ("run.sh", "python -m acme_verl.main", False),
    ("a.yaml", "image: registry/verl:latest", True),
    ("a.yaml", "image: x # verl", False),
    ("a.yaml", "verl_root: x", False),
]


@pytest.mark.parametrize(("path", "text", "expected"), MENTIONS)
def test_mentions_of_verl(path, text, expected):
    assert mentions_verl(path, text) is expected


def test_kinds_of_files():
    assert is_shell("a.sh", "")
    assert is_shell("a", "#!/bin/sh\n")
    assert is_shell("x.sbatch", "")
    assert not is_shell("a", "#!/usr/bin/env python3\n")
    assert not is_shell("a.py", "#!/bin/sh")
    assert is_metadata("x/requirements_dev.txt")
    assert is_metadata("setup.py")
    assert not is_metadata("x/notes.txt")
    assert not is_metadata("requirements.py")


PIECES = st.sampled_from(
    [
        f"{KEY}=",
        f"{NAME}: ",
        "a.b.C",
        "$X",
        "${X:-",
        "}",
        "X=",
        "'",
        '"',
        "\\",
        "\n",
        "#",
        " ",
        "{{",
    ]
)


@given(st.lists(PIECES, max_size=20).map("".join), st.sampled_from(["a.sh", "a.yaml", "setup.py"]))
def test_anything_can_be_read(text, path):
    classes = manager_classes(path, text)
    assert all(part.isidentifier() for name in classes for part in name.split("."))
    assert mentions_verl(path, text) is False
