"""AWG021: keys of YAML nodes that construct a manager, and interpolations that point at them."""

from __future__ import annotations

import re
import textwrap

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from actor_wg_codemod.documents import DocumentError, yaml_nodes
from actor_wg_codemod.model import Finding

OLD, NEW = "trainer", "actor_wg"
MANAGER = "verl.checkpoint_engine.CheckpointEngineManager"
TARGET = f"_target_: {MANAGER}"


def is_manager(dotted: str) -> bool:
    return dotted in (MANAGER, "own.SlowManager")


def findings(text: str) -> list[Finding]:
    return yaml_nodes.findings(text, is_manager, OLD, NEW)


def sites(text: str) -> list[tuple[int, str]]:
    return [(found.span.line, found.code) for found in findings(text)]


def migrated(text: str) -> str:
    return yaml_nodes.apply(text, findings(text))


NOTHING = {
    "no target": f"sync:\n  {OLD}: 1\n",
    "other target": f"sync:\n  _target_: lightning.Trainer\n  {OLD}: 1\n",
    "a class of that name elsewhere": f"a: {{_target_: acme.CheckpointEngineManager, {OLD}: 1}}\n",
    "section beside the node": f"{OLD}:\n  nnodes: 1\nsync:\n  {TARGET}\n  config: 1\n",
    "below the node": f"sync:\n  {TARGET}\n  config:\n    {OLD}: 1\n",
    "above the node": f"{OLD}:\n  {TARGET}\n  config: 1\n",
    "longer key": f"sync:\n  {TARGET}\n  {OLD}_world_size: 1\n  num_{OLD}: 2\n",
    "value": f"sync:\n  {TARGET}\n  config: {OLD}\n",
    "comment": f"sync:\n  {TARGET}\n  # {OLD}: 1\n  config: 1\n",
    "block scalar": f"sync:\n  {TARGET}\n  config: |\n    {OLD}: 1\n",
    "target in a comment": f"sync:\n  # {TARGET}\n  {OLD}: 1\n",
    "target is a list": f"sync:\n  _target_: [{MANAGER}]\n  {OLD}: 1\n",
    "next document": f"a:\n  {TARGET}\n---\na:\n  {OLD}: 1\n",
    "interpolation of the section": f"{OLD}: {{n: 1}}\na:\n  {TARGET}\n  config: ${{{OLD}.n}}\n",
    "sibling merges the same base": f"b: &b {{config: 1}}\na: {{<<: *b, {TARGET}}}\n"
    f"c: {{<<: *b, {OLD}: 1}}\n",
    "overridden target": f"b: &b\n  {TARGET}\na:\n  <<: *b\n  _target_: other.Thing\n  {OLD}: 1\n",
    "block scalar of no ConfigMap": f"kind: Pod\ndata:\n  a.yaml: |\n    {TARGET}\n    {OLD}: 1\n",
    "broken block of a ConfigMap": f"kind: ConfigMap\ndata:\n  a: |\n    {TARGET}\n    {OLD}: [\n",
    "folded block of a ConfigMap": f"kind: ConfigMap\ndata:\n  a: >\n    {TARGET}\n\n    {OLD}: 1\n",
}


@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING)
def test_keys_of_something_else_are_left_alone(text):
    list(yaml.compose_all(text))
    assert sites(text) == []


# The old name is written OLD where it has to change.
RENAMED = {
    "block": f"sync:\n  {TARGET}\n  OLD: ???   # trainer\n",
    "key first": f"sync:\n  OLD: 1\n  {TARGET}\n",
    "root": f"{TARGET}\nOLD: 1",
    "subclass": "sync:\n  _target_: own.SlowManager\n  OLD: 1\n",
    "quoted target": f"sync:\n  _target_: '{MANAGER}'\n  OLD: 1\n",
    "folded target": f"sync:\n  _target_: >-\n    {MANAGER}\n  OLD: 1\n",
    "double quotes": f'sync:\n  {TARGET}\n  "OLD": 1\n',
    "single quotes": f"sync:\n  {TARGET}\n  'OLD' : 1\n",
    "flow": f"sync: {{{TARGET}, OLD: null, replicas: []}}\n",
    "JSON style": f'{{"sync": {{"_target_": "{MANAGER}", "OLD":null}}}}',
    "in a list": f"- {TARGET}\n  OLD: 1\n- trainer: 1\n",
    "tagged and anchored key": f"sync:\n  {TARGET}\n  !!str &k OLD: 1\n",
    "question mark": f"sync:\n  {TARGET}\n  ? OLD\n  : 1\n",
    "anchored node": f"a: &a\n  {TARGET}\n  OLD: 1\nb: *a\n",
    "target through a merge key": f"b: &b\n  {TARGET}\na:\n  <<: *b\n  OLD: 1\n",
    "target through a merged list": f"b: &b {{{TARGET}}}\nc: &c {{}}\na: {{<<: [*c, *b], OLD: 1}}\n",
    "target through two merge keys": f"b: &b {{{TARGET}}}\nc: &c {{<<: *b}}\na: {{<<: *c, OLD: 1}}\n",
    "key in a merged template": f"b: &b\n  OLD: 1\na:\n  <<: *b\n  {TARGET}\n",
    "two documents": f"a:\n  {TARGET}\n  OLD: 1\n---\nb:\n  {TARGET}\n  OLD: 2\n...\n",
    "inside a manager": f"a:\n  {TARGET}\n  OLD:\n    {TARGET}\n    OLD: 1\n",
    "non-ASCII before": f"a: \U0001f600\u00fc\u2028\nb: {{x: '\u00fc', {TARGET}, OLD: 1}}\n",
    "ConfigMap": f"kind: ConfigMap\ndata:\n  a.yaml: |\n    x: 1\n    sync:\n      {TARGET}\n"
    "      OLD: 1\n  b: trainer\n",
    "ConfigMap with chomping": f"kind: ConfigMap\ndata:\n  a.yaml: |-\n\n   {TARGET}\n   OLD: 1\n",
}


@pytest.mark.parametrize("marked", RENAMED.values(), ids=RENAMED)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_keys_of_managers_are_renamed_and_nothing_else(marked, end):
    marked = marked.replace("\n", end)
    before, after = marked.replace("OLD", OLD), marked.replace("OLD", NEW)
    lines = [i for i, line in enumerate(marked.split(end), 1) for _ in re.findall("OLD", line)]
    assert sites(before) == [(line, "AWG021") for line in lines]
    assert migrated(before) == after
    assert sites(after) == []
    assert migrated("\ufeff" + before) == "\ufeff" + after
    assert yaml_nodes.apply(after, yaml_nodes.findings(after, is_manager, NEW, OLD)) == before


# What points at the renamed key: the interpolations and whether they do.
POINTING = {
    "absolute": ("${sync.trainer}", True),
    "in a longer string": ("group-${sync.trainer}-${sync.config}", True),
    "through the key": ("${sync.trainer.world_size}", True),
    "brackets": ("${sync[trainer]}", True),
    "spaces": ("${ sync.trainer }", True),
    "nested": ("${eval:${sync.trainer}}", True),
    "selected": ("${oc.select:sync.trainer,null}", True),
    "relative to the holder": ("${..sync.trainer}", True),
    "relative outside": ("${...sync.trainer}", False),
    "relative to a sibling": ("${.trainer}", False),
    "section": ("${trainer.nnodes}", False),
    "escaped": (r"\${sync.trainer}", False),
    "other node": ("${other.trainer}", False),
    "longer name": ("${sync.trainer_kwargs}", False),
    "environment": ("${oc.env:trainer}", False),
    "through another interpolation": ("${alias.trainer}", True),
}


@pytest.mark.parametrize(("value", "points"), POINTING.values(), ids=POINTING)
@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_interpolations_of_the_renamed_key_need_a_person(value, points, quote):
    if quote == '"':
        value = value.replace("\\", "\\\\")
    text = textwrap.dedent(
        f"""\
        trainer: {{nnodes: 2}}
        sync:
          {TARGET}
          config: 1
          trainer: 1
          trainer_kwargs: 2
        other: {{trainer: 1}}
        alias: ${{sync}}
        probe:
          group: {quote}{value}{quote}
        """
    )
    manual = [(10, "AWG902")] if points else []
    assert sites(text) == [(5, "AWG021"), *manual]
    for found in findings(text):
        row = text.split("\n")[found.span.line - 1]
        assert row[found.span.column : found.span.end_column] == OLD
    after = migrated(text)
    assert after == text.replace("  trainer: 1\n", "  actor_wg: 1\n")
    assert sites(after) == manual


def test_relative_interpolations_inside_the_node():
    text = f"sync:\n  {TARGET}\n  trainer: 1\n  replicas: ['${{..trainer}}', '${{.trainer}}']\n"
    assert sites(text) == [(3, "AWG021"), (4, "AWG902")]
    assert sites(f"{TARGET}\ntrainer: 1\nconfig: ${{.trainer}}\n") == [(2, "AWG021"), (3, "AWG902")]


MANUAL = {
    "both keys": (f"a:\n  {TARGET}\n  trainer: 1\n  actor_wg: 2\n", 3),
    "both keys through a merge": (
        f"b: &b {{actor_wg: 1}}\na: {{<<: *b, {TARGET}, trainer: 1}}\n",
        2,
    ),
    "shared with another target": (
        f"b: &b\n  {TARGET}\n  trainer: 1\nc:\n  <<: *b\n  _target_: lightning.Loop\n",
        3,
    ),
    "template of different targets": (
        f"b: &b {{trainer: 1}}\na: {{<<: *b, {TARGET}}}\nc: {{<<: *b, _target_: other.Loop}}\n",
        1,
    ),
    "written with escapes": (f'a: {{{TARGET}, "tr\\x61iner": 1, config: trainer}}\n', 1),
}


@pytest.mark.parametrize(("text", "line"), MANUAL.values(), ids=MANUAL)
def test_keys_that_no_edit_is_sure_for_need_a_person(text, line):
    assert sites(text) == [(line, "AWG902")]
    assert migrated(text) == text


@pytest.mark.parametrize(
    "text", ["a: [\n", "{{ if }}: %\n", "a: 1\n b: 2\n", "a: *unknown\n", "a: \x01\n", "[" * 3000]
)
def test_what_is_no_yaml_says_so_in_one_line(text):
    with pytest.raises(DocumentError) as caught:
        findings(f"{text}# _target_ trainer")
    assert "\n" not in str(caught.value)


def test_interpolations_through_lists_and_dead_ends():
    text = f"all:\n- {TARGET}\n  trainer: 1\na: ${{all.0.trainer}} ${{all[0].trainer}}\n"
    more = "b: ${all.9.trainer} ${all.x.trainer} ${a.trainer} ${c.trainer}\nc: ${all} x\n"
    assert sites(text + more) == [(3, "AWG021"), (4, "AWG902"), (4, "AWG902")]
    assert sites(f"a: {{{TARGET}, trainer: 1}}\nb: ${{b}}\nc: ${{b.trainer}}\n") == [(1, "AWG021")]


def test_recursive_anchors_end():
    assert sites(f"a: &a\n  <<: *a\n  trainer: {TARGET[10:]}\n# _target_\n") == []
    text = f"a: &a\n  {TARGET}\n  trainer: *a\n  x: ${{a.trainer.trainer}}\n"
    assert sites(text) == [(3, "AWG021"), (4, "AWG902"), (4, "AWG902")]


SCALARS = st.sampled_from(["1", "null", "'${trainer.n}'", '"x"', "'???'", "[]", "[trainer]", "{}"])
KEYS = st.sampled_from(["trainer", "'trainer'", '"trainer"', "config", "a.trainer", "_partial_"])
TARGETS = st.sampled_from([MANAGER, "own.SlowManager", "lightning.Trainer", "'x'"])


@st.composite
def nodes(draw: st.DrawFn) -> str:
    keys = draw(st.lists(KEYS, unique_by=lambda key: key.strip("'\""), max_size=4))
    pairs = [f"{key}: {draw(SCALARS)}" for key in keys]
    if draw(st.booleans()):
        pairs.insert(draw(st.integers(0, len(pairs))), f"_target_: {draw(TARGETS)}")
    if draw(st.booleans()) or not pairs:
        return " {" + ", ".join(pairs) + "}"
    return "".join(f"\n  {pair}  # trainer" for pair in pairs)


@given(st.lists(nodes(), max_size=5))
def test_generated_files_change_only_in_keys_of_managers(drawn):
    text = "".join(f"n{number}:{node}\n" for number, node in enumerate(drawn))
    before, after = yaml.safe_load(text) or {}, yaml.safe_load(migrated(text)) or {}
    for name, node in before.items():
        if is_manager(node.get("_target_", "")) and OLD in node:
            node = {NEW if key == OLD else key: value for key, value in node.items()}
        assert list(after[name].items()) == list(node.items())
    assert re.sub(NEW, OLD, migrated(text)) == text
    assert migrated(migrated(text)) == migrated(text)
