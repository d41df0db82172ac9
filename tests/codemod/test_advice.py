"""AWG201: what blocks an event loop is listed where it is selected, and never edited."""

from __future__ import annotations

import textwrap

import pytest

from helpers import check_noop, check_reported, run, write_tree

SELECT = ("--select", "AWG201")

FINE = {
    "a plain function": "def f(refs):\n    return ray.get(refs)",
    "a nested plain function": "async def f(refs):\n    def g():\n        return ray.get(refs)\n    return g",
    "a lambda": "async def f(loop, refs):\n    await loop.run_in_executor(None, lambda: ray.get(refs))",
    "handed to a thread": "async def f(refs):\n    await asyncio.to_thread(ray.get, refs)",
    "a method of a class in a coroutine": "async def f():\n    class A:\n        def g(self, refs):\n            ray.wait(refs)",
    "somebody else's": "async def f(store, refs):\n    store.get(refs)\n    await asyncio.wait(refs)",
    "a parameter of that name": "async def f(ray):\n    ray.get(1)",
    "a local of that name": "async def f(make):\n    get = make()\n    get(1)",
    "another function": "async def f(refs):\n    ray.put(refs)\n    ray.init()",
    "a decorator's argument outside": "@wrap(ray.get(1))\nasync def f():\n    pass",
    "a default outside": "async def f(x=ray.get(1)):\n    return x",
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_fine(text):
    check_noop(f"import asyncio\nimport ray\n{text}\n", *SELECT)


BLOCKS = {
    "by module": ("import ray", "ray.get(refs)"),
    "by module alias": ("import ray as r", "r.wait(refs)"),
    "by name": ("from ray import get", "get(refs)"),
    "by name alias": ("from ray import wait as w", "w(refs)"),
    "by an assigned alias": ("import ray\nfetch = ray.get", "fetch(refs)"),
    "by a local alias": ("import ray", "fetch = ray.get; fetch(refs)"),
    "by an alias of an alias": ("from ray import get as a\nb = a", "b(refs)"),
    "by a module's other name": ("import ray\nR = ray", "R.get(refs)"),
    "optional": ("try:\n    import ray\nexcept ImportError:\n    ray = None", "ray.get(refs)"),
    "imported inside": ("import asyncio", "import ray; ray.get(refs)"),
    "in a comprehension": ("import ray", "[ray.get(r) for r in refs]"),
    "in a class body": ("import ray", "\n    class A:\n        x = ray.get(refs)"),
    "in an f-string": ("import ray", "f'{ray.get(refs)}'"),
    "in a default of a nested function": (
        "import ray",
        "\n    def g(x=ray.get(refs)):\n        pass",
    ),
    "awaited all the same": ("import ray", "await ray.get(refs)"),
    "with a star": ("import ray", "ray.get([*refs])"),
}


@pytest.mark.parametrize(("head", "body"), BLOCKS.values(), ids=BLOCKS)
def test_blocks(head, body):
    source = f"{head}\n\nasync def f(refs):\n    {body}\n"
    line = len(source.splitlines()) - (source.endswith("pass\n"))
    check_reported(source, [f"{line}:AWG201"], *SELECT)
    check_noop(source)


def test_the_message_says_what_to_write_and_the_place_is_the_name(tmp_path):
    write_tree(
        tmp_path, {"a.py": b"import ray\nasync def f(r):\n    return ray . get(r), ray.wait(r)\n"}
    )
    out = run("check", *SELECT, folder=tmp_path).out
    assert "a.py:3:18: AWG201" in out
    assert "a.py:3:30: AWG201" in out
    assert out.count("await asyncio.gather(*refs)") == 2


THROUGH = {
    "its ray": ("import ray", "from rays import ray", "ray.get(refs)"),
    "its ray by module": ("import ray as r  # lazily", "import rays", "rays.r.wait(refs)"),
    "its get": ("from ray import init, get", "from rays import get", "get(refs)"),
    "its alias": ("from ray import wait as get", "from rays import get as g", "g(refs)"),
}


@pytest.mark.parametrize(("rays", "head", "call"), THROUGH.values(), ids=THROUGH)
def test_through_a_module_of_the_project(rays, head, call):
    loop = f"{head}\nasync def f(refs):\n    {call}\n"
    check_reported({"rays.py": f"{rays}\n", "loop.py": loop}, ["loop.py:3:AWG201"], *SELECT)
    other = rays.replace("import ray", "import redis").replace("from ray ", "from redis ")
    check_noop({"rays.py": f"{other}\n", "loop.py": loop}, *SELECT)


MANAGER = """
    import asyncio
    import ray


    class CheckpointEngineManager:
        @auto_await
        async def update_weights(self, steps=None):
            if self.backend == "naive":
                ray.get(self.group.update_weights(steps))
                return
            await asyncio.gather(*[r.abort() for r in self.replicas])
            ray.get(
                self.group.update_weights(steps)
                + self.rollout.update_weights(steps)
            )
            ray.get(self.group.finalize())

        def connect(self):
            return ray.get(self.group.prepare())
    """


def test_the_calls_of_a_manager_like_verls():
    text = textwrap.dedent(MANAGER)
    check_reported({"example.py": text}, ["9:AWG201", "12:AWG201", "16:AWG201"], *SELECT)


def test_cells_of_a_notebook():
    cell = '"import ray\\n", "async def f(r):\\n", "    return ray.get(r)"'
    text = (
        f'{{"cells": [{{"cell_type": "code", "metadata": {{}}, "outputs": [], "source": [{cell}]}}], '
        '"metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    )
    check_reported({"a.ipynb": text}, ["a.ipynb:3:AWG201"], *SELECT)
