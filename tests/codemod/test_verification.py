"""`actor-wg verify`: what binds against verl 0.9, what does not and why, and the command around it."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import pytest

from actor_wg_codemod import verdict_rows
from actor_wg_codemod.verdict_rows import Row, Status
from helpers import FIXTURES, run, write_tree

IMPORT = "from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineManager, CheckpointEngineRegistry\n"
NCCL = "from verl.checkpoint_engine.nccl_checkpoint_engine import MasterMetadata, NCCLCheckpointEngine\n"
ROLLOUT = "from verl.workers.rollout import BaseRollout, RolloutReplica\n"


def rows(folder: Path, source: str | dict[str, str], *options: str) -> list[dict[str, object]]:
    """The static rows of a project, without those that say that there is nothing."""
    files = {"example.py": source} if isinstance(source, str) else source
    write_tree(folder, {name: textwrap.dedent(text).encode() for name, text in files.items()})
    result = run("verify", "--static", "--output-format", "json", *options, folder=folder)
    found = json.loads(result.out)
    failed = any(row["status"] == "failed" for row in found)
    assert result.status == int(failed), result.err
    return [row for row in found if row["filename"]]


def verdicts(found: list[dict[str, object]]) -> list[str]:
    """`check line status` of each row."""
    lines = []
    for row in found:
        place = row["location"]
        assert isinstance(place, dict)
        lines.append(f"{row['check']} {place['row']} {row['status']}")
    return lines


def reason(found: list[dict[str, object]], check: str) -> str:
    (text,) = [str(row["reason"]) for row in found if row["check"] == check and row["reason"]]
    return text


# Somebody else's names


@pytest.mark.parametrize(
    "source",
    [
        "class CheckpointEngineManager:\n    def __init__(self, path): ...\n\nCheckpointEngineManager(1, 2, 3, 4)\n",
        "from lightning import CheckpointEngineManager\nCheckpointEngineManager(path=1)\n",
        "class BaseRollout: ...\n\nclass Mine(BaseRollout):\n    def update_weights(self): ...\n",
        "from trl import RolloutReplica\n\nclass Mine(RolloutReplica):\n    async def abort_all_requests(self): ...\n",
        "class MasterMetadata: ...\n\nMasterMetadata(1, 2)\n",
        "def build_topology(a): ...\n\nbuild_topology(1)\n",
    ],
)
def test_classes_of_other_projects_are_not_judged(source, tmp_path):
    assert [r for r in rows(tmp_path, source) if r["status"] == "failed"] == []


# Constructions


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("CheckpointEngineManager(config, group, [])", "passed"),
        ("CheckpointEngineManager(config=config, actor_wg=group, replicas=[])", "passed"),
        ("CheckpointEngineManager(config, **rest)", "passed"),
        ("CheckpointEngineManager(config, group)", "failed"),
        ("CheckpointEngineManager(config, group, [], True)", "failed"),
        ("CheckpointEngineManager(config=config, actor_wg=group, replicas=[], name='x')", "failed"),
        ("CheckpointEngineManager(config, group, replicas=[], config=config)", "failed"),
    ],
)
def test_a_construction_binds_as_python_would(call, status, tmp_path):
    source = f"{IMPORT}\ndef make(config, group, rest):\n    return {call}\n"
    assert verdicts(rows(tmp_path, source)) == [f"V2 4 {status}"]


def test_an_old_keyword_is_an_old_name_and_a_construction_that_does_not_bind(tmp_path):
    source = f"{IMPORT}CheckpointEngineManager(config=1, trainer=2, replicas=[])\n"
    found = rows(tmp_path, source)
    assert verdicts(found) == ["V1 2 failed", "V2 2 failed"]
    assert "actor-wg migrate" in reason(found, "V1")
    text = reason(found, "V2")
    assert "CheckpointEngineManager of verl >= 0.9.0 takes no trainer=" in text
    assert "it takes config, actor_wg, replicas" in text


def test_the_withdrawn_keyword_says_what_to_pass_instead(tmp_path):
    source = f"{IMPORT}CheckpointEngineManager(backend='nccl', actor_wg=1, replicas=[])\n"
    assert "Pass config=" in reason(rows(tmp_path, source), "V2")


def test_a_partial_may_get_the_rest_later_and_its_call_binds_the_rest(tmp_path):
    source = f"""\
        from functools import partial
        {IMPORT}
        make = partial(CheckpointEngineManager, 1)
        make(actor_wg=2, replicas=[])
        wrong = partial(CheckpointEngineManager, wg=2)
    """
    found = verdicts(rows(tmp_path, source))
    assert found == ["V2 4 passed", "V2 5 passed", "V2 6 failed"]


def test_a_subclass_is_bound_against_its_own_constructor_in_another_file(tmp_path):
    files = {
        "fleet/__init__.py": "",
        "fleet/manager.py": IMPORT
        + "class Mine(CheckpointEngineManager):\n"
        + "    def __init__(self, config, actor_wg, replicas, limit):\n"
        + "        super().__init__(config, actor_wg=actor_wg, replicas=replicas)\n",
        "train.py": "from fleet.manager import Mine as M\n\nM(1, 2, [], limit=3)\nM(1, 2, [])\n",
    }
    found = rows(tmp_path, files)
    assert {f"{r['filename']} {v}" for r, v in zip(found, verdicts(found), strict=True)} == {
        "fleet/manager.py V2 4 passed",
        "fleet/manager.py V3 3 advisory",
        "train.py V2 3 passed",
        "train.py V2 4 failed",
    }


def test_what_a_manager_is_constructed_from_may_not_be_known(tmp_path):
    source = f"{IMPORT}def make(cls):\n    return cls(config=1, actor_wg=2, replicas=[])\n"
    found = rows(tmp_path, source)
    assert verdicts(found) == ["V2 3 skipped"]
    assert "not known" in reason(found, "V2")


# Managers


MANAGER = f"""\
    {IMPORT}
    class Mine(CheckpointEngineManager):
        def __init__(self, config, wg, replicas):
            super().__init__(config, wg, replicas)
"""


def test_a_class_that_verl_loads_by_name_must_take_the_keywords(tmp_path):
    named = {
        "__init__.py": "",
        "mine.py": MANAGER,
        "conf/run.py": "overrides = ['actor_rollout_ref.rollout.checkpoint_manager_class=mine.Mine']\n",
    }
    found = rows(tmp_path, {"mine.py": MANAGER, "conf/run.py": named["conf/run.py"]})
    assert "V3 4 failed" in verdicts(found)
    assert "takes no actor_wg=" in reason(found, "V3")


def test_a_class_that_only_the_project_constructs_is_told_only(tmp_path):
    found = rows(tmp_path, {"mine.py": MANAGER})
    assert "V3 4 advisory" in verdicts(found)
    assert "checkpoint_manager_class" in reason(found, "V3")


def test_an_override_of_abort_replicas_is_told_of_the_new_keyword(tmp_path):
    source = f"""\
        {IMPORT}
        class Mine(CheckpointEngineManager):
            async def abort_replicas(self): ...
    """
    found = rows(tmp_path, source)
    assert verdicts(found) == ["V3 4 advisory"]
    assert "0.9.1 calls abort_replicas(reject_request=)" in reason(found, "V3")


# Engines


def engine(methods: str, *, register: str = '@CheckpointEngineRegistry.register("x")') -> str:
    body = textwrap.indent(textwrap.dedent(methods), "    ")
    return f"{IMPORT}\n{register}\nclass Mine(CheckpointEngine):\n{body}"


@pytest.mark.parametrize(
    ("method", "status"),
    [
        ("def __init__(self, bucket_size, is_master=False, port=1): ...", ["passed"]),
        ("def __init__(self, bucket_size, port, is_master=False): ...", ["passed"]),
        ("def __init__(self, **settings): ...", ["passed"]),
        ("def __init__(self, bucket_size): ...", ["failed"]),
        ("def __init__(self, size, is_master): ...", ["failed"]),
        ("async def send_weights(self, weights, global_steps=None): ...", ["passed"]),
        ("async def send_weights(self, weights, **more): ...", ["passed"]),
        ("async def send_weights(self, weights): ...", ["failed"]),
        ("async def receive_weights(self): ...", ["failed"]),
        ("async def receive_weights(self, global_steps): ...", ["passed"]),
        ("@classmethod\ndef build_topology(cls, a, b, c, d): ...", ["failed"]),
        ("@classmethod\ndef build_topology(cls, *args): ...", ["passed"]),
        (
            "@staticmethod\ndef build_topology(actor_wg_world_size, rollout_world_size, metadata): ...",
            ["passed"],
        ),
    ],
)
def test_an_engine_takes_what_verl_passes(method, status, tmp_path):
    found = rows(tmp_path, engine(method))
    assert [row["status"] for row in found if row["check"] == "V4"] == status


def test_other_names_for_the_topologys_parameters_run_and_are_told(tmp_path):
    found = rows(
        tmp_path,
        engine("@classmethod\ndef build_topology(cls, actor_wg_world_size, n, metadatas): ..."),
    )
    assert [row["status"] for row in found] == ["passed", "advisory"]
    text = reason(found, "V4")
    assert "n where verl has rollout_world_size and metadatas where verl has metadata" in text


def test_an_engine_that_nobody_registers_is_told_only(tmp_path):
    source = engine("async def send_weights(self, weights): ...", register="")
    found = rows(tmp_path, source)
    assert verdicts(found) == ["V4 5 advisory"]
    assert "not registered" in reason(found, "V4")


def test_an_engine_registered_by_a_call_elsewhere_counts(tmp_path):
    files = {
        "mine.py": engine("async def send_weights(self, weights): ...", register=""),
        "plugin.py": f'{IMPORT}from mine import Mine\n\nCheckpointEngineRegistry.register("x")(Mine)\n',
    }
    assert verdicts(rows(tmp_path, files)) == ["V4 5 failed"]


# Calls of an engine


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("Mine.build_topology(1, 2, [])", "passed"),
        ("Mine.build_topology(actor_wg_world_size=1, rollout_world_size=2, metadata=[])", "passed"),
        ("Mine.build_topology(actor_wg_world_size=1, rollout_size=2, metadata=[])", "failed"),
        ("CheckpointEngineRegistry.get('x').build_topology(1, 2, metadatas=[])", "failed"),
        ("CheckpointEngineRegistry.get('x').build_topology(1, 2, [])", "passed"),
        ("Mine(1).init_process_group(rank=0, world_size=2)", "passed"),
        ("Mine(1).init_process_group(rank=0)", "failed"),
    ],
)
def test_calls_of_an_engine_bind(call, status, tmp_path):
    source = engine(
        """\
        @classmethod
        def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata): ...
        def init_process_group(self, rank, world_size): ...
        """
    )
    found = rows(tmp_path, f"{source}\n{call}\n")
    assert [row["status"] for row in found if row["check"] == "V5"] == [status]


# The breaks after the rename


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ("self, weights, global_steps=None, wire_format='named_tensors'", "passed"),
        ("self, weights, **kwargs", "passed"),
        ("self, weights, global_steps=None", "failed"),
    ],
)
def test_a_rollout_takes_the_wire_format(parameters, status, tmp_path):
    source = (
        f"{ROLLOUT}\nclass Mine(BaseRollout):\n    async def update_weights({parameters}): ...\n"
    )
    found = rows(tmp_path, source)
    assert verdicts(found) == [f"V6 4 {status}"]
    if status == "failed":
        text = reason(found, "V6")
        assert ">= 0.9.0" in text
        assert 'Add wire_format="named_tensors" or **kwargs.' in text


def test_a_rollout_below_one_of_verls_own_is_one(tmp_path):
    source = """\
        from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

        class Adapter(ServerAdapter): ...

        class Mine(Adapter):
            async def update_weights(self, weights, global_steps=None): ...
    """
    assert verdicts(rows(tmp_path, source)) == ["V6 6 failed"]


@pytest.mark.parametrize(
    ("parameters", "release", "status"),
    [
        ("self, reject_request=False", "0.9.1", "passed"),
        ("self, **options", "0.9.1", "passed"),
        ("self", "0.9.1", "failed"),
        ("self", "0.9.0", "advisory"),
    ],
)
def test_a_replica_takes_reject_request_from_the_release_that_passes_it(
    parameters, release, status, tmp_path
):
    source = f"{ROLLOUT}\nclass Mine(RolloutReplica):\n    async def abort_all_requests({parameters}): ...\n"
    found = rows(tmp_path, source, "--release", release)
    assert verdicts(found) == [f"V7 4 {status}"]


def test_a_replica_by_its_shape_alone_is_told_only(tmp_path):
    source = """\
        import verl

        class Mine:
            async def abort_all_requests(self): ...
            async def resume_generation(self): ...
            async def release_kv_cache(self): ...
    """
    found = rows(tmp_path, source)
    assert verdicts(found) == ["V7 4 advisory"]
    assert "Not proven" in reason(found, "V7")


def test_a_replica_below_an_unknown_package_of_that_name_is_told_only(tmp_path):
    source = """\
        import verl
        from ours.rollout import RolloutReplica

        class Mine(RolloutReplica):
            async def abort_all_requests(self): ...
    """
    assert verdicts(rows(tmp_path, source)) == ["V7 5 advisory"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("MasterMetadata(zmq_ip='h', zmq_port=1, multi_sender=False)", ["V8 3 passed"]),
        ("MasterMetadata(zmq_ip='h', zmq_port=1)", ["V8 3 failed"]),
        ("def f(metadata: MasterMetadata) -> MasterMetadata: ...", []),
        ("def f(metadata):\n    return isinstance(metadata, MasterMetadata)", ["V8 4 advisory"]),
        ("NCCLCheckpointEngine(1).init_process_group(0, 2, None)", ["V8 3 failed"]),
        ("NCCLCheckpointEngine(1).init_process_group(0, 2, None, num_senders=1)", ["V8 3 passed"]),
        (
            "class Mine(NCCLCheckpointEngine):\n    def init_process_group(self, rank, world_size, master_metadata): ...",
            ["V8 4 failed"],
        ),
        (
            "class Mine(NCCLCheckpointEngine):\n    def init_process_group(self, rank, **rest): ...",
            ["V8 4 passed"],
        ),
        (
            "class Mine(NCCLCheckpointEngine):\n    def prepare(self):\n        return None",
            ["V8 4 failed"],
        ),
        (
            "class Mine(NCCLCheckpointEngine):\n    def prepare(self):\n        return super().prepare()",
            ["V8 4 passed"],
        ),
    ],
)
def test_what_builds_on_nccl_fits_its_latest_release(code, expected, tmp_path):
    found = rows(tmp_path, f"{NCCL}\n{code}\n")
    assert verdicts(found) == expected


@pytest.mark.parametrize("keys", ['{"rank": [0]}', '{"rank": [0], "num_senders": [1]}'])
def test_a_topology_for_nccls_own_process_group_has_the_senders(keys, tmp_path):
    source = f"""\
        {NCCL}
        class Mine(NCCLCheckpointEngine):
            @classmethod
            def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
                return {keys}, {keys}
    """
    found = [row for row in rows(tmp_path, source) if row["check"] == "V8"]
    assert [row["status"] for row in found] == ["passed" if "num_senders" in keys else "failed"]


def test_the_same_code_binds_against_the_release_before(tmp_path):
    source = f"{NCCL}\nMasterMetadata(zmq_ip='h', zmq_port=1)\n"
    found = rows(tmp_path, source, "--release", "0.9.0")
    assert verdicts(found) == ["V8 3 advisory"]
    assert "verl 0.9.0 still takes it" in reason(found, "V8")


# A copy of verl in the tree


def test_a_copy_of_verl_in_the_tree_decides_about_its_own_calls(tmp_path):
    copy = {
        "verl/__init__.py": "",
        "verl/checkpoint_engine/__init__.py": "from .base import *\n",
        "verl/checkpoint_engine/base.py": """\
            class CheckpointEngine:
                @classmethod
                def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata): ...
                async def send_weights(self, weights): ...

            class CheckpointEngineManager:
                def __init__(self, config, actor_wg, replicas): ...

            CheckpointEngineManager(1, 2, 3)
        """,
    }
    own = "from verl.checkpoint_engine import CheckpointEngine\n\nclass Mine(CheckpointEngine):\n"
    own += "    async def send_weights(self, weights): ...\n"
    found = rows(tmp_path, {**copy, "mine.py": own})
    assert [row["status"] for row in found if row["filename"] == "mine.py"] == ["skipped"]
    assert not [row for row in found if row["status"] == "failed"]


# The command


@pytest.fixture
def downstream(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "downstream", tmp_path / "downstream"))


def test_the_example_fails_before_migration_and_passes_after_it(downstream):
    before = run("verify", "--static", folder=downstream)
    assert before.status == 1
    assert "tidewater/trainer.py:20:43: AWG001: " in before.out
    assert "conf/tidewater.yaml:20:3: AWG021: " in before.out
    assert "tidewater/manager.py:31:9: super().__init__(...): " in before.out
    assert run("migrate", folder=downstream).status == 0
    after = run("verify", "--static", folder=downstream)
    assert (after.status, after.err) == (0, "13 passed, 0 failed, 0 advisory, 2 skipped\n")
    assert "failed" not in after.out


def test_nothing_about_verl_is_nothing_to_verify(tmp_path):
    write_tree(tmp_path, {"a.py": b"trainer = 1\n"})
    result = run("verify", "--static", folder=tmp_path)
    assert result.status == 0
    assert result.err == "1 passed, 0 failed, 0 advisory, 7 skipped\n"


def test_a_file_that_does_not_parse_is_named_and_ends_with_two(tmp_path):
    write_tree(tmp_path, {"a.py": IMPORT.encode() + b"CheckpointEngineManager(trainer=\n"})
    result = run("verify", "--static", folder=tmp_path)
    assert result.status == 2
    assert "a.py: " in result.out
    assert "Traceback" not in result.out + result.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        (["--engine", "module"], "does not read module:Class"),
        (["--deadline", "soon"], "is not a number of seconds"),
        (["--engine-kwargs", "[1]"], "is not a JSON object"),
        (["--engine-kwargs", "{"], "not JSON"),
        (["--verl-root", "a/b"], "is not an import path"),
        (["--release", "0.8.0"], "invalid choice"),
        (["--anything"], "--anything"),
    ],
)
def test_a_usage_error_is_one_line(argv, message, tmp_path):
    result = run("verify", *argv, folder=tmp_path)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_one_file_can_be_verified(tmp_path):
    files = {
        "a.py": f"{IMPORT}CheckpointEngineManager(1)\n",
        "b.py": f"{IMPORT}CheckpointEngineManager(2)\n",
    }
    write_tree(tmp_path, {name: text.encode() for name, text in files.items()})
    result = run("verify", "--static", "a.py", folder=tmp_path)
    assert result.status == 1
    assert "a.py:2:1" in result.out
    assert "b.py" not in result.out


def test_excluded_folders_are_left_out(tmp_path):
    write_tree(tmp_path, {"old/a.py": f"{IMPORT}CheckpointEngineManager(1)\n".encode()})
    assert run("verify", "--static", folder=tmp_path).status == 1
    assert run("verify", "--static", "--exclude", "old", folder=tmp_path).status == 0


def test_the_table_names_the_worst_of_a_check_and_how_many_passed():
    found = [
        Row("static", "V2", "bind", Status.PASSED, "a", "", "x.py", 1, 1),
        Row("static", "V2", "bind", Status.FAILED, "b", "why", "x.py", 2, 1),
        Row("dynamic", "C17", "dtypes", Status.SKIPPED, "engine m:E", "no GPU"),
    ]
    assert verdict_rows.text(found) == (
        "static\n"
        "  V2    failed    bind (1 of 2 passed)\n"
        "          x.py:2:1: b: why\n"
        "dynamic: engine m:E\n"
        "  C17   skipped   dtypes\n"
        "          no GPU\n"
    )
    assert "x.py:1:1: passed: a" in verdict_rows.text(found, verbose=True)
