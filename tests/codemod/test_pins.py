"""Version pins below 0.9: which files are read, which specifiers count, where they stand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from actor_wg_codemod.pins import Pin, is_below, pins

BELOW = ["==0.8.0", "==0.8.*", "===0.8", "<0.9", "<0.9.0", "<=0.8.1", "~=0.8.0", ">=0.7,<0.9"]
NOT_BELOW = ["==0.9.0", ">=0.8", "<1", "<0.9.1", "<=0.9", "~=0.8", "!=0.8.0", ">=0.9,<1", "==0.*"]


@pytest.mark.parametrize("specifier", [*BELOW, "^0.8", "^0.8.3", "~0.8", "=0.8", "0.8.0", "^0.0.3"])
def test_specifiers_below(specifier):
    assert is_below(specifier)


@pytest.mark.parametrize("specifier", [*NOT_BELOW, "*", "^0.9", "~0", "^0", "^0.8 || ^0.9", "0.*"])
def test_specifiers_that_admit_the_new_names(specifier):
    assert not is_below(specifier)


def test_the_specifiers_mean_what_pip_takes_them_for():
    releases = ["0.9.0", "0.9.1", "0.9.2", "0.10.0", "1.0", "2.0"]
    for specifier in [*BELOW, *NOT_BELOW]:
        assert is_below(specifier) is not any(SpecifierSet(specifier).filter(releases))


FILES = {
    "requirements.txt": ("torch\nverl==0.8.0 --hash=sha256:0abc  # x\n", 2, "verl==0.8.0"),
    "requirements-dev.txt": ("verl[vllm,gpu] >= 0.7, < 0.9 ; x", 1, "verl[vllm,gpu] >= 0.7, < 0.9"),
    "requirements/gpu.in": ("-r x\n\nVerl~=0.8.1\n", 3, "Verl~=0.8.1"),
    "constraints.txt": ("verl @ https://x/verl-0.8.0-py3-none-any.whl", 1, None),
    "b/requirements.txt": ("git+https://x/y/verl.git@v0.8.0#egg=verl", 1, None),
    "pyproject.toml": ('[project]\ndependencies = [\n  "verl<0.9",\n]\n', 3, "verl<0.9"),
    "a/pyproject.toml": (
        "[project.optional-dependencies]\nx = [\"verl==0.8.0; python_version<'3.12'\"]",
        2,
        "verl==0.8.0",
    ),
    "c/pyproject.toml": (
        '[dependency-groups]\ndev = [{include-group = "x"}, "verl<0.9"]',
        2,
        "verl<0.9",
    ),
    "d/pyproject.toml": ('[tool.poetry.dependencies]\nverl = "^0.8"\n', 2, "verl ^0.8"),
    "e/pyproject.toml": (
        '[tool.poetry.group.dev.dependencies.verl]\nextras = ["x"]\nversion = "~0.8"\n',
        3,
        "verl ~0.8",
    ),
    "f/pyproject.toml": ('[tool.pdm.dev-dependencies]\nx = ["verl~=0.8.0"]', 2, "verl~=0.8.0"),
    "g/pyproject.toml": (
        '[tool.uv.sources]\nverl = { git = "https://x/verl", tag = "v0.8.0" }',
        2,
        "verl v0.8.0",
    ),
    "setup.cfg": ("[options]\ninstall_requires =\n  torch\n  verl<0.9\n", 4, "verl<0.9"),
    "a/setup.cfg": ("[options]\ninstall_requires = verl<0.9\n", 2, "verl<0.9"),
    "setup.py": (
        'R = [\n  "torch",\n  "verl==0.8.0",\n]\nsetup(install_requires=R)',
        3,
        "verl==0.8.0",
    ),
    "uv.lock": ('[[package]]\nname = "verl"\nversion = "0.8.0"\n', 3, "verl 0.8.0"),
    "poetry.lock": ('x = 1\n[[package]]\nname = "verl"\nversion = "0.7.1"\n', 4, "verl 0.7.1"),
    "Pipfile": ('[packages]\nverl = "==0.8.0"\n', 2, "verl ==0.8.0"),
    "Pipfile.lock": (
        json.dumps({"default": {"verl": {"hashes": [], "version": "==0.8.0"}}}, indent=1),
        5,
        "verl==0.8.0",
    ),
    "environment.yml": ("dependencies:\n  - pip:\n    - verl==0.8.0\n", 3, "verl==0.8.0"),
    "conda/env-gpu.yaml": ("dependencies:\n  - 'verl=0.8'\n", 2, "verl=0.8"),
}


@pytest.mark.parametrize("name", FILES)
def test_pins_are_found_where_they_stand(tmp_path, name):
    text, line, what = FILES[name]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for content in (text, text.replace("\n", "\r\n"), "\ufeff" + text):
        path.write_bytes(content.encode())
        assert pins(tmp_path, [name]) == [Pin(name, line, what or text)]
    path.write_text(text.replace("0.8", "0.9").replace("<0.9", ">=0.9").replace("0.7.1", "1.0"))
    if "< 0.9" not in text:
        assert pins(tmp_path, [name]) == []
    path.write_text(text.replace("erl", "erlet").replace("://x/y/", "://x/"))
    assert pins(tmp_path, [name]) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "# verl==0.8.0\nacme-verl==0.8\nverl_x<0.9\nverl\nverl>=0.8\n"),
        ("requirements.txt", "verl @ git+https://x/verl@main"),
        ("notes.txt", "verl==0.8.0"),
        ("a.yaml", "- verl==0.8.0"),
        ("pyproject.toml", "verl==0.8.0 ["),
        ("pyproject.toml", '[tool.poetry.dependencies]\nverl = {path = "../verl"}'),
        ("pyproject.toml", '[tool.uv.sources]\nverl = {git = "x", rev = "0ab81c2"}'),
        ("setup.py", "verl==0.8.0 ("),
        ("Pipfile.lock", '{"verl": {"version": "==0.8.0"'),
        ("uv.lock", '[[package]]\nname = "verl"\nsource = "x"\n[[package]]\nversion = "0.8.0"\n'),
    ],
)
def test_what_is_no_pin(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert pins(tmp_path, [name]) == []


def test_files_that_cannot_be_read_are_passed_over(tmp_path):
    (tmp_path / "requirements.txt").write_bytes(b"verl==0.8.0 \xff")
    (tmp_path / "setup.cfg").mkdir()
    (tmp_path / "setup.py").write_text("x = 'verl<0.9'")
    files = ["gone/requirements.txt", "requirements.txt", "setup.cfg", "setup.py"]
    assert pins(tmp_path, files) == [Pin("setup.py", 1, "verl<0.9")]


@given(st.text(alphabet="verl0.89<>=~^!*|, @#", max_size=20))
def test_any_specifier_can_be_read(text):
    assert is_below(text) in (True, False)
