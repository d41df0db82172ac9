"""E: the global step that was sent is the one received and published; old messages are ignored."""

from __future__ import annotations

from actor_wg_engine.conformance.catalog import check
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.fleet import Fleet
from actor_wg_engine.conformance.probe import Consume, Produce
from actor_wg_engine.conformance.results import CheckFailed, CheckSkipped
from actor_wg_engine.conformance.session import Session
from actor_wg_engine.conformance.sources import engine_modules
from actor_wg_engine.conformance.weights import recipe


def skip_unless_ours(factory: EngineFactory) -> None:
    """Skip a check that looks into our wire format, for engines that do not use it."""
    modules = {module.__name__ for module in engine_modules(factory.engine_class())}
    if "actor_wg_engine.wire" not in modules:
        raise CheckSkipped("the engine has a wire format of its own")


@check("E39", advisory=True)
def check_version_travels(factory: EngineFactory) -> None:
    """A receiver that expects another global step than was sent fails, and names both."""
    with Session(factory, rollouts=2) as session:
        outcome = session.sync(recipe("mixed"), 7, expect=[7, 8])
        if not isinstance(outcome.received[1], BaseException):
            raise CheckFailed("step 7 was sent and step 8 expected, and the receiver took it")
        text = str(outcome.received[1])
        if "7" not in text or "8" not in text:
            raise CheckFailed(f"the error does not name both steps: {text}")
        session.expect(recipe("mixed", seed=2), 9)


@check("E39b")
def check_version_is_published(factory: EngineFactory) -> None:
    """After a sync every server was told the global step that was sent."""
    with Fleet(factory, replicas=(1, 2)) as fleet:
        for step in (5, 6):
            fleet.update(step)
            fleet.require_served(step)


@check("E40", advisory=True)
def check_published_when_whole(factory: EngineFactory) -> None:
    """A replica whose one worker fails is not served the new version by its other worker."""
    with Fleet(factory, replicas=(2, 1), bucket_size=64 << 10) as fleet:
        fleet.update(1)
        fleet.rollouts[1].call("behave", Consume(raise_at=4))
        fleet.fail(2, names=("replica 0",))
        fleet.require_never_mixed()
        fleet.require_not_serving(0)
        fleet.rollouts[1].call("behave", Consume())
        fleet.recover(0, 3)
        fleet.require_served(3)


@check("E41", advisory=True)
def check_old_generations_are_ignored(factory: EngineFactory) -> None:
    """What is left of a sync that failed half way does not reach the receivers of the next."""
    with Session(factory, rollouts=2, bucket_size=16 << 10, timeout=25) as session:
        session.expect(recipe("mixed", seed=1), 1)
        session.sync(recipe("mixed", seed=2), 2, produce=Produce(raise_at=6))
        session.expect(recipe("mixed", seed=3), 3)


@check("E41b")
def check_replayed_headers(factory: EngineFactory) -> None:
    """A header of another session, an older generation, or out of its turn is not accepted."""
    skip_unless_ours(factory)
    import torch

    from actor_wg_engine import wire
    from actor_wg_engine.contract import TensorMeta
    from actor_wg_engine.errors import EngineError

    payload = torch.arange(8, dtype=torch.int64).view(torch.uint8)
    meta = TensorMeta("w", torch.Size((8,)), torch.int64, 0, 64, 0)
    session, other = bytes(16), bytes(15) + b"x"
    stream = wire.Stream(session, 4)
    for sent, sequence, what in (
        (wire.Stream(session, 3), 2, "an older generation"),
        (wire.Stream(other, 4), 2, "another session"),
        (stream, 1, "a replayed sequence number"),
        (stream, 3, "a sequence number out of turn"),
    ):
        frame = wire.encode(sent, 5, sequence, [meta], payload, tensors=1, last=True, checked=True)
        try:
            wire.decode(frame, stream, 2, 5, 1 << 20)
        except EngineError:
            continue
        raise CheckFailed(f"{what} is accepted")


@check("E42")
def check_same_version_twice(factory: EngineFactory) -> None:
    """The same global step may be synced twice."""
    with Fleet(factory, replicas=(1, 1)) as fleet:
        fleet.update(4)
        fleet.update(4)
        fleet.require_served(4)


@check("E43", advisory=True)
def check_lower_version(factory: EngineFactory) -> None:
    """A global step lower than what is served is refused before any worker is touched."""
    with Fleet(factory, replicas=(1,)) as fleet:
        fleet.update(9)
        try:
            fleet.update(8)
        except AssertionError:
            raise
        except Exception as error:
            if "8" not in str(error) or "9" not in str(error):
                raise CheckFailed(f"the error does not name both steps: {error}") from error
            fleet.require_served(9)
            return
        raise CheckFailed("global step 8 was synced over 9")
