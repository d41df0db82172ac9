"""`--naming`: locals, private keys and quoted words of the rename follow; every other trainer stays.

In these texts GROUP stands where the old name becomes the new one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import pytest

from helpers import check_fixed, check_noop, check_reported

HEAD = "from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineManager\n\n\n"


def check_follows(template: str | Mapping[str, str]) -> None:
    """The places marked GROUP follow with `--naming`, nothing else does, and `--reverse` undoes it."""
    old, new = _spelled(template, "trainer"), _spelled(template, "actor_wg")
    check_fixed(old, new, "--naming")
    check_fixed(new, old, "--naming", "--reverse")


def _spelled(template: str | Mapping[str, str], group: str) -> str | dict[str, str]:
    if isinstance(template, str):
        return template.replace("GROUP", group)
    return {name: text.replace("GROUP", group) for name, text in template.items()}


STAYS = {
    "a parameter is the function's own": """
        def run(cfg, trainer):
            return CheckpointEngineManager(cfg, trainer, [])
        """,
    "a parameter that is bound again": """
        def run(cfg, trainer=None):
            trainer = trainer or cfg.make()
            return CheckpointEngineManager(cfg, trainer, [])
        """,
    "a global": """
        def run(cfg, pool):
            global trainer
            trainer = pool.spawn()
            return CheckpointEngineManager(cfg, trainer, [])
        """,
    "a module-level name": """
        trainer = object()
        manager = CheckpointEngineManager(None, trainer, [])
        """,
    "an import": """
        def run(cfg):
            import trainer
            return CheckpointEngineManager(cfg, trainer, [])
        """,
    "verl's controller, though it is passed": """
        def run(cfg):
            from verl.trainer.ppo.ray_trainer import RayPPOTrainer

            trainer = RayPPOTrainer(cfg)
            return CheckpointEngineManager(cfg, trainer, [])
        """,
    "another library's trainer": """
        def run(cfg, wg):
            import lightning

            trainer = lightning.Trainer()
            trainer.fit(cfg)
            return CheckpointEngineManager(cfg, wg, [])
        """,
    "a name for two things": """
        def run(cfg, pool):
            trainer = cfg.loop()
            trainer.fit()
            trainer = pool.spawn()
            return CheckpointEngineManager(cfg, trainer, [])
        """,
    "another position of the call": """
        def run(cfg, pool):
            trainer = pool.loop()
            return CheckpointEngineManager(trainer, cfg, [])
        """,
    "the topology of another class": """
        class Planner:
            def build_topology(self, a, b):
                trainer_kwargs = {"a": a}
                return trainer_kwargs, {"b": b}

        def run(planner: Planner):
            trainer_kwargs, _ = planner.build_topology(1, 2)
            return trainer_kwargs
        """,
    "prose in a manager": '''
        class M(CheckpointEngineManager):
            """Syncs the trainer.

            trainer: comes first.

            Args:
                config: What the
                    trainer: needs.

            Raises:
                trainer: no argument.
            """

            def push(self):
                # the trainer waits; config.trainer.nnodes, see obj.self.trainer and trainer.nnodes
                print("trainer is ready", {"note": "trainer_world_size"})
        ''',
    "a manager's method with parameters of its own": '''
        class M(CheckpointEngineManager):
            def attach(self, trainer, trainer_world_size):
                """``trainer`` has trainer_world_size ranks.

                Args:
                    trainer: The loop.
                    trainer_world_size: Its size.
                """
                # `trainer` has trainer_world_size ranks
                assert trainer_world_size, "trainer_world_size is missing"
        ''',
    "a manager that builds no topology": """
        class M(CheckpointEngineManager):
            def push(self):
                # the server's field trainer_world_size counts everybody
                return None
        """,
    "a subclass whose own parameter is something else": '''
        class M(CheckpointEngineManager):
            """Knows the loop.

            Args:
                trainer: The loop.
            """

            def __init__(self, config, group, replicas, trainer):
                super().__init__(config, group, replicas)
                self.loop = trainer
        ''',
}


@pytest.mark.parametrize("text", STAYS.values(), ids=STAYS)
def test_stays(text):
    check_noop(HEAD + textwrap.dedent(text).lstrip("\n"), "--naming")


LOCALS = {
    "by position": """
        GROUP = pool.spawn()
        return CheckpointEngineManager(cfg, GROUP, [])
        """,
    "by partial": """
        from functools import partial

        GROUP = pool.spawn()
        return partial(CheckpointEngineManager, cfg, GROUP)
        """,
    "by a splatted dictionary": """
        GROUP = pool.spawn()
        given = {"config": cfg, "GROUP": GROUP, "replicas": []}
        return CheckpointEngineManager(**given)
        """,
    "written from outside": """
        manager = CheckpointEngineManager(cfg, None, [])
        GROUP = pool.spawn()
        manager.GROUP = GROUP
        """,
    "walrus": """
        return CheckpointEngineManager(config=cfg, GROUP=(GROUP := pool.spawn()), replicas=[])
        """,
    "closure": """
        GROUP = pool.spawn()

        def make():
            return CheckpointEngineManager(cfg, GROUP, [])

        return make, lambda trainer: trainer
        """,
    "made in a loop": """
        GROUP = None
        for _ in pool:
            if GROUP is None:
                GROUP = pool.spawn()
            CheckpointEngineManager(cfg, GROUP, [])
        """,
    "a loop's": """
        for GROUP in pool:
            CheckpointEngineManager(cfg, GROUP, [])
        """,
    "a comprehension's": """
        trainer = pool.loop()
        return [CheckpointEngineManager(cfg, GROUP, []) for GROUP in trainer.groups]
        """,
    "its size": """
        GROUP_world_size = CheckpointEngineManager(cfg, pool, []).GROUP.world_size
        return GROUP_world_size
        """,
    "the size of a local": """
        GROUP = CheckpointEngineManager(cfg, pool, []).GROUP
        GROUP_world_size = max(GROUP.world_size, 1)
        return GROUP_world_size
        """,
    "passed to a topology": """
        GROUP_world_size = 2
        return CheckpointEngine.build_topology(GROUP_world_size, 1, [])
        """,
}


@pytest.mark.parametrize("body", LOCALS.values(), ids=LOCALS)
def test_local(body):
    check_follows(
        f"{HEAD}def run(cfg, pool):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    )


def test_a_local_is_found_after_the_keyword_was_migrated():
    text = f"{HEAD}def run(cfg, pool):\n    GROUP = pool.spawn()\n    CheckpointEngineManager(cfg, actor_wg=GROUP, replicas=[])\n"
    check_fixed(text.replace("GROUP", "trainer"), text.replace("GROUP", "actor_wg"), "--naming")


CLASHES = {
    "the new name is taken": "actor_wg = 1",
    "locals()": "print(locals())",
    "an inner function binds the new name": "return lambda actor_wg: trainer",
}


@pytest.mark.parametrize("line", CLASHES.values(), ids=CLASHES)
def test_clash_needs_a_person(line):
    source = f"{HEAD}def run(cfg, pool):\n    trainer = pool.spawn()\n    CheckpointEngineManager(cfg, trainer, [])\n    {line}\n"
    check_reported(source, ["5:AWG902"], "--naming")
    check_noop(source)


SIZE_WORDS = {
    "Google": '"""X.\n\n        Args:\n            GROUP_world_size (int): Ranks of the trainer.\n        """',
    "NumPy": '"""X.\n\n        Parameters\n        ----------\n        a, GROUP_world_size : int\n        """',
    "Sphinx": '"""X.\n\n        :param int GROUP_world_size: ranks of the trainer\n        """',
    "doctest": '"""X.\n\n        >>> build_topology(GROUP_world_size=1)\n        """',
    "returns": '"""Returns (GROUP_kwargs, rollout_kwargs) for trainer and rollout."""',
    "comment": "x = '#'  # the trainer has GROUP_world_size ranks",
    "raise": "raise KeyError('GROUP_world_size')",
    "assert": "assert meta, 'no GROUP_world_size: ' + str(meta)",
    "log": "log.info('GROUP_world_size=%s, trainer', n)",
    "f-string": "print(f'GROUP_world_size {n} GROUP_world_size')",
    "joined": "print('a' f'{n} GROUP_world_size'\n              ' GROUP_world_size')",
    "message": "message = f'\u00e4 GROUP_world_size is {n!r:>{n}}'",
    "attribute of the group": "# n = GROUP.world_size, not trainer.nnodes or config.trainer.world_size",
}


@pytest.mark.parametrize("line", SIZE_WORDS.values(), ids=SIZE_WORDS)
def test_words_in_an_override(line):
    check_follows(
        f"{HEAD}class E(CheckpointEngine):\n    @classmethod\n"
        f"    def build_topology(cls, GROUP_world_size, n, meta):\n        {line}\n        return None\n"
    )


DATA = {
    "a key": "x = {'trainer_world_size': 1}",
    "a metric": "log.info('x', extra={'perf/trainer_world_size': 1})",
    "a path": "print('a/trainer_world_size')",
    "a flag": "print('--trainer_world_size')",
    "somebody's attribute": "print('cfg.trainer_world_size')",
    "its own attribute": "self.trainer_world_size = n  # self.trainer_world_size",
    "a longer name": "print('my_trainer_world_size trainer_world_sizes')",
    "a value": "return f'{n} of trainer_world_size'",
    "a quoted key that stays": "x = meta['trainer_world_size']  # meta['trainer_world_size']",
}


@pytest.mark.parametrize("line", DATA.values(), ids=DATA)
def test_data_in_an_override_stays(line):
    source = f"{HEAD}class E(CheckpointEngine):\n    def build_topology(self, actor_wg_world_size, n, meta):\n        {line}\n"
    check_noop(source, "--naming")


GROUP_WORDS = {
    "double backquotes": "# ``GROUP`` of the trainer",
    "backquotes": "# `GROUP`, not `trainer.nnodes`",
    "its attribute": "# GROUP.world_size of the trainer, not trainer.nnodes",
    "the manager's attribute": "# self.GROUP of the trainer",
    "a call": "# CheckpointEngineManager(cfg, GROUP=wg) for Callback(trainer=None)",
}


@pytest.mark.parametrize("line", GROUP_WORDS.values(), ids=GROUP_WORDS)
def test_words_for_the_group_in_a_manager(line):
    check_follows(
        f"{HEAD}class M(CheckpointEngineManager):\n    def f(self):\n        {line}\n        return 1\n"
    )


def test_docstring_of_a_manager():
    check_follows(
        HEAD
        + '''class M(CheckpointEngineManager):
    """A manager for the trainer.

    >>> m = M(cfg, GROUP=wg, replicas=[])
    >>> m.GROUP.world_size
    >>> loop = pl.Trainer(callbacks=[f(trainer=None)])

    Attributes:
        GROUP: The group of the trainer.
        loop: The trainer.
    """

    def __init__(self, config, GROUP, replicas, loop=None):
        """Args:
            config: The trainer's.
            GROUP (RayWorkerGroup): The trainer's workers.
        """
        super().__init__(config, GROUP, replicas)
'''
    )


PRIVATE = """class E(CheckpointEngine):
    @classmethod
    def build_topology(cls, GROUP_world_size, n, meta):
        return WRITES

    def init_process_group(self, READS


def test(e: E):
    a, b = E.build_topology(1, 2, [])
    CALL
"""
TWO = '{"GROUP_world_size": [1]}, {"GROUP_world_size": [2]}'
PARAMETER = "GROUP_world_size):\n        self.n = GROUP_world_size"
BOTH_SIDES = {
    "two dictionaries": (TWO, PARAMETER, "pass"),
    "one lacks it": ('{"GROUP_world_size": [1]}, {}', PARAMETER, "pass"),
    "repeated": ('({"GROUP_world_size": [1]},) * 2', PARAMETER, "pass"),
    "kwargs": (TWO, '**kwargs):\n        self.n = kwargs["GROUP_world_size"]', "pass"),
    "popped": (
        TWO,
        '**kwargs):\n        self.go(kwargs.pop("GROUP_world_size"), **kwargs)',
        "pass",
    ),
    "a caller's keyword": (TWO, PARAMETER, "e.init_process_group(GROUP_world_size=1)"),
    "a reader of the topology": (TWO, PARAMETER, 'assert a["GROUP_world_size"]'),
}


@pytest.mark.parametrize(("writes", "reads", "call"), BOTH_SIDES.values(), ids=BOTH_SIDES)
def test_private_key_changes_on_both_sides(writes, reads, call):
    text = PRIVATE.replace("WRITES", writes).replace("READS", reads).replace("CALL", call)
    check_follows(HEAD + text)


def test_private_key_changes_after_the_parameter_was_migrated():
    text = PRIVATE.replace("GROUP_world_size, n", "actor_wg_world_size, n")
    text = HEAD + text.replace("WRITES", TWO).replace("READS", PARAMETER).replace("CALL", "pass")
    check_fixed(text.replace("GROUP", "trainer"), text.replace("GROUP", "actor_wg"), "--naming")


ONE_SIDE = {
    "made elsewhere": ("plan(n)", PARAMETER, "pass"),
    "one of two is made elsewhere": ('{"GROUP_world_size": [1]}, plan(n)', PARAMETER, "pass"),
    "read elsewhere": (TWO, "**kwargs):\n        self.go(**kwargs)", "pass"),
    "nobody reads it": (TWO, "rank):\n        self.n = rank", "pass"),
    "an unclear caller": (TWO, PARAMETER, "x.init_process_group(GROUP_world_size=1)"),
    "an unclear key": (TWO, PARAMETER, 'assert "GROUP_world_size" in e.state()'),
}


@pytest.mark.parametrize(("writes", "reads", "call"), ONE_SIDE.values(), ids=ONE_SIDE)
def test_private_key_stays_where_a_side_is_hidden(writes, reads, call):
    text = PRIVATE.replace("GROUP_world_size, n", "actor_wg_world_size, n")
    text = text.replace("WRITES", writes).replace("READS", reads).replace("CALL", call)
    check_noop(HEAD + text.replace("GROUP", "trainer"), "--naming")


def test_private_key_whose_parameter_clashes_needs_a_person():
    reads = "trainer_world_size):\n        actor_wg_world_size = trainer_world_size"
    text = PRIVATE.replace("GROUP_world_size, n", "actor_wg_world_size, n").replace("WRITES", TWO)
    text = text.replace("READS", reads).replace("CALL", "pass").replace("GROUP", "trainer")
    check_reported(HEAD + text, ["9:AWG902"], "--naming")


OLD_FORK = {
    "verl/__init__.py": "",
    "verl/checkpoint_engine/__init__.py": "from .base import CheckpointEngineManager\n",
    "verl/checkpoint_engine/base.py": '''
class CheckpointEngineRegistry:
    @classmethod
    def get(cls, name):
        return cls.known[name]


class CheckpointEngine:
    """Takes weights from trainer to rollout.

    >>> trainer = make()
    >>> engine.send(trainer.weights())
    """

    @classmethod
    def build_topology(cls, GROUP_world_size, rollout_world_size, metadata):
        """Plan the ranks of trainer and rollout.

        Args:
            GROUP_world_size: The trainer's number of ranks.

            ```
            n = rollout.world_size + GROUP.world_size
            ```
        """


class CheckpointEngineManager:
    """Takes the weights from the trainer to the replicas.

    Args:
        GROUP: The workers of the trainer.
    """

    def __init__(self, config, GROUP, replicas):
        self.backend_cls = CheckpointEngineRegistry.get(config.backend)
        self.GROUP = GROUP

    def connect(self, rollout):
        """Connect trainer and rollout."""
        GROUP = self.GROUP
        GROUP_kwargs, rollout_kwargs = self.backend_cls.build_topology(
            GROUP.world_size, rollout.world_size, GROUP.call(["prepare"] * GROUP.world_size)
        )
        for k, v in GROUP_kwargs.items():
            assert len(v) == GROUP.world_size, f"GROUP_kwargs[{k}] is not {GROUP.world_size} long"
        GROUP.call(**GROUP_kwargs)
''',
    "verl/checkpoint_engine/kimi_checkpoint_engine.py": """
from .base import CheckpointEngine


class KIMICheckpointEngine(CheckpointEngine):
    @classmethod
    def build_topology(cls, GROUP_world_size, rollout_world_size, metadata):
        GROUP_kwargs = {
            "rank": list(range(GROUP_world_size)),
            "GROUP_world_size": [GROUP_world_size] * GROUP_world_size,
        }
        rollout_kwargs = {"GROUP_world_size": [GROUP_world_size] * rollout_world_size}
        return GROUP_kwargs, rollout_kwargs

    def init_process_group(self, rank, GROUP_world_size):
        # For trainer ranks other than 0 nothing is sent.
        self.GROUP_world_size = GROUP_world_size
""",
    "tests/test_sync.py": """
from verl.checkpoint_engine import CheckpointEngineManager


def test_sync(trainer_pool, config, num_trainer):
    # create trainer and rollout
    GROUP = create_trainer_worker_group(trainer_pool, config.trainer)
    GROUP.reset()
    CheckpointEngineManager(config=config, GROUP=GROUP, replicas=[])
""",
    "verl/trainer/loop.py": """
from verl.checkpoint_engine import CheckpointEngineManager


class Loop:
    def start(self, trainer):
        self.trainer = trainer
        self.sync = CheckpointEngineManager(self.config, GROUP=self.wg, replicas=[])
""",
}


def test_a_fork_is_renamed_as_upstream_did():
    """All code as in verl's own rename; of its prose only what quotes a name."""
    check_follows(OLD_FORK)


def test_markup_changes_only_with_naming_and_one_place_each():
    text = f"# Trainer\n\nThe trainer passes `trainer=`.\n\n```python\n{HEAD}M = CheckpointEngineManager\nM(None, GROUP=1, replicas=[]).GROUP\n```\n"
    files = {"a.md": text.replace("GROUP", "trainer")}
    check_noop(files)
    check_fixed(files, {"a.md": text.replace("GROUP", "actor_wg")}, "--naming")


def test_markup_never_reports_what_is_unproven_or_manual():
    text = "```python\nfrom x import CheckpointEngineManager\nCheckpointEngineManager(config=1, trainer=2, replicas=3)\n```\n"
    both = f"```python\n{HEAD}CheckpointEngineManager(1, trainer=2, actor_wg=2, replicas=3)\n```\n"
    check_noop({"a.md": text, "b.md": both, "c.py": "import verl\n"}, "--naming", "--unsafe-fixes")
