"""What settings outside Python prove: which classes are managers, whether verl is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from actor_wg_codemod.renames import MANAGER_CLASS_SETTING as SETTING
from actor_wg_codemod.renames import VERL

from .lines import DocumentError, split_lines
from .shell_text import expand, variables, without_comments
from .view import syntax_problem

_YAML = (".yaml", ".yml")
_SHELL = (".sh", ".bash", ".zsh", ".ksh", ".slurm", ".sbatch")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_VALUE = r"""(?:\\?["']){0,2}(?P<value>(?:\$\{[^{}\s]*\}|[^\s"'\\;&|()<>,\]}#])+)"""
# An override of Hydra's (a leading ~ would delete the setting), an assignment or an option.
_OVERRIDE = re.compile(
    r"(?<![\w~$.{-])(?:--|\+{1,2})?(?:[A-Za-z_][\w-]*[./@])*" + SETTING + r"""["']?=""" + _VALUE
)
_PAIR = re.compile(
    r"""(?<![\w$.{-])["']?(?:[A-Za-z_]\w*\.)*""" + SETTING + r"""["']?:[ \t]+""" + _VALUE
)
_YAML_COMMENT = re.compile(r"""(?:^|(?<=\s))#.*""")
_VERL = re.compile(rf"(?<![A-Za-z0-9_]){VERL}(?![A-Za-z0-9_])")
_REQUIREMENTS = re.compile(r"(?:.*[-_.])?(?:requirements|constraints)(?:[-_.].*)?\.(?:txt|in)")
_METADATA = frozenset(
    {"pyproject.toml", "setup.cfg", "setup.py", "Pipfile", "Pipfile.lock", "poetry.lock", "uv.lock"}
)


def manager_classes(path: str, text: str) -> set[str]:
    """The dotted names that a YAML file or a shell script sets as `checkpoint_manager_class`.

    Comments do not count. Files of other kinds prove nothing here; what Python says is found by
    the analysis itself.
    """
    if SETTING not in text:
        return set()
    if PurePath(path).suffix.lower() in _YAML:
        return _dotted(_yaml_values(text))
    if is_shell(path, text):
        return _dotted(_shell_values(text))
    return set()


def mentions_verl(path: str, text: str) -> bool:
    """Whether YAML, shell, requirements or project metadata say the word `verl`.

    Not in comments, and not as a part of a longer name: no letter, digit or underscore may
    stand next to it.
    """
    if VERL not in text:
        return False
    if is_shell(path, text):
        return _VERL.search(without_comments(text)) is not None
    if PurePath(path).name == "setup.py":
        return any(_VERL.search(string) for string in _strings(text))
    if PurePath(path).suffix.lower() in _YAML or is_metadata(path):
        return any(_VERL.search(line) for line in _uncommented(text))
    return False


def is_shell(path: str, text: str) -> bool:
    """Whether the file is a shell script, by its name or by its first line."""
    suffix = PurePath(path).suffix.lower()
    first = text[:80].split("\n", 1)[0]
    return suffix in _SHELL or (
        not suffix and re.match(r"#!.*\b(?:ba|z|k|da)?sh\b", first) is not None
    )


def is_metadata(path: str) -> bool:
    """Whether the file says what a project depends on."""
    name = PurePath(path).name
    in_folder = PurePath(path).parent.name == "requirements" and name.endswith((".txt", ".in"))
    return name in _METADATA or in_folder or _REQUIREMENTS.fullmatch(name.lower()) is not None


def _dotted(values: Iterable[str]) -> set[str]:
    stripped = (value.strip().strip("\"'") for value in values)
    return {value for value in stripped if _DOTTED.fullmatch(value)}


def _uncommented(text: str) -> Iterator[str]:
    """The lines without what follows a `#` that starts a line or a word outside quotes."""
    for line in split_lines(text):
        yield _YAML_COMMENT.sub("", line)


def _strings(text: str) -> Iterator[str]:
    """The strings of a Python file, docstrings left out; none if it does not parse."""
    if syntax_problem(text) is not None:
        return
    tree = ast.parse(text)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


def _yaml_values(text: str) -> Iterator[str]:
    # PyYAML is slow to load and few files ever come here.
    from .yaml_settings import values

    try:
        found = list(values(text, SETTING))
    except DocumentError:
        # A template of YAML still proves what its lines say.
        yield from _text_values("\n".join(_uncommented(text)))
        return
    for value, given in found:
        if given:
            yield value
        else:
            # A script, an override, or YAML inside a block scalar.
            yield from _shell_values(value)


def _shell_values(text: str) -> Iterator[str]:
    script = without_comments(text)
    known = variables(script)
    for value in _text_values(script):
        yield from expand(value, known)


def _text_values(text: str) -> Iterator[str]:
    for pattern in (_OVERRIDE, _PAIR):
        for match in pattern.finditer(text):
            yield match["value"]
