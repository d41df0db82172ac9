"""F: the event loop stays alive, syncs do not interleave, cancelling works, default groups are let be."""

from __future__ import annotations

import asyncio
import time

from actor_wg_engine.conformance import collectives
from actor_wg_engine.conformance.catalog import check
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.fleet import Fleet
from actor_wg_engine.conformance.probe import Consume, Produce, Ticker
from actor_wg_engine.conformance.results import CheckFailed
from actor_wg_engine.conformance.session import MIB, Session
from actor_wg_engine.conformance.weights import recipe

GAP = 0.1  # seconds; on a machine that is not starved 0.05 holds


@check("F44")
def check_two_updates_at_once(factory: EngineFactory) -> None:
    """Two update_weights at once come one after the other, or the second fails at once."""
    with Fleet(factory, replicas=(1, 1)) as fleet:
        fleet.update(1)

        async def both() -> list[object]:
            return list(
                await asyncio.gather(
                    fleet.manager.update_weights(global_steps=2),
                    fleet.manager.update_weights(global_steps=3),
                    return_exceptions=True,
                )
            )

        results = fleet.run(both())
        if isinstance(results[0], BaseException):
            raise CheckFailed(f"the first of two syncs failed: {results[0]}")
        fleet.require_served(2 if isinstance(results[1], BaseException) else 3)
        fleet.update(4)
        fleet.require_served(4)


@check("F45", advisory=True)
def check_event_loops_stay_alive(factory: EngineFactory) -> None:
    """No event loop of a worker stands still while a sync waits for a slow peer, or moves 128 MiB."""
    slow = 0.02
    with Session(factory, rollouts=1, bucket_size=4 * MIB) as session:
        for produce, consume in (
            (Produce(), Consume(count_only=True)),
            (Produce(), Consume(count_only=True, pause=slow)),
            (Produce(pause=slow), Consume(count_only=True)),
        ):
            outcome = session.sync(
                recipe("blocks", count=32, nbytes=4 * MIB), 1, produce=produce, consume=consume
            )
            for who, gap, seconds in (
                ("sender", outcome.senders()[0].gap, outcome.senders()[0].seconds),
                ("receiver", outcome.receivers()[0].gap, outcome.receivers()[0].seconds),
            ):
                if gap > GAP:
                    raise CheckFailed(
                        f"the {who}'s event loop stood still for {gap:.3f} s of {seconds:.3f} s"
                    )


@check("F45b")
def check_driver_loop_stays_alive(factory: EngineFactory) -> None:
    """The driver's event loop goes on while update_weights runs."""
    with Fleet(factory, replicas=(1,), bucket_size=4 * MIB) as fleet:
        fleet.plan(recipe("blocks", count=24, nbytes=4 * MIB))
        fleet.rollouts[0].call("behave", Consume(pause=0.02))

        async def ticked() -> float:
            async with Ticker() as ticker:
                await fleet.manager.update_weights(global_steps=1)
            return ticker.gap

        gap = fleet.run(ticked())
        if gap > GAP:
            raise CheckFailed(f"the driver's event loop stood still for {gap:.3f} s")


@check("F46", advisory=True, deadline=45)
def check_cancel(factory: EngineFactory) -> None:
    """update_weights that is cancelled half way returns soon, restores the replicas, and the next works."""
    with Fleet(factory, replicas=(1, 1), bucket_size=64 << 10) as fleet:
        fleet.update(1)
        fleet.rollouts[0].call("behave", Consume(gate_at=3))

        async def cancelled() -> float:
            task = asyncio.ensure_future(fleet.manager.update_weights(global_steps=2))
            await asyncio.get_running_loop().run_in_executor(
                None, fleet.rollouts[0].wait_event, "consumer waits"
            )
            started = time.monotonic()
            task.cancel()
            await asyncio.wait([task], timeout=20)
            if not task.done():
                raise CheckFailed("a cancelled update_weights did not return within 20 s")
            if not task.cancelled() and task.exception() is None:
                raise CheckFailed("a cancelled update_weights ended as if it had succeeded")
            return time.monotonic() - started

        seconds = fleet.run(cancelled())
        if seconds > 5:
            raise CheckFailed(f"a cancelled update_weights returned after {seconds:.1f} s")
        fleet.require_idle(3)
        fleet.rollouts[0].call("release", "consumer")
        fleet.rollouts[0].call("behave", Consume())
        fleet.require_never_mixed()
        fleet.recover(None, 3)
        fleet.require_served(3)
        fleet.require_gates_open()


@check("F47", deadline=40)
def check_beside_a_default_group(factory: EngineFactory) -> None:
    """A default process group of the user's goes on working during and after a sync."""
    with Session(factory, actors=2, rollouts=1, bucket_size=64 << 10) as session:
        collectives.start_default_group(session.actors)
        for step in (1, 2):
            session.expect(recipe("mixed", seed=step), step)
            collectives.require_default_group(session.actors)


@check("F48", advisory=True)
def check_without_a_default_group(factory: EngineFactory) -> None:
    """A sync works without a default process group, and none is made or left behind."""
    with Session(factory, rollouts=1) as session:
        session.expect(recipe("mixed"), 1)
        for worker in session.workers:
            if worker.call("call", "actor_wg_engine.conformance.collectives:has_default_group"):
                raise CheckFailed(f"{worker.name} has a default process group after the sync")


@check("F49", deadline=40)
def check_collective_generators(factory: EngineFactory) -> None:
    """Generators that are collectives of the actors work: ranks outside the group drain theirs."""
    with Session(factory, actors=3, rollouts=1, bucket_size=16 << 10) as session:
        collectives.start_default_group(session.actors)
        for step in (1, 2):
            session.expect(recipe("mixed", seed=step), step, produce=Produce(collective=True))
        outcome = session.expect(recipe("mixed", seed=3), 3, produce=Produce(collective=True))
        for index, sent in enumerate(outcome.senders()):
            if sent.exhausted_at is None:
                raise CheckFailed(f"actor {index} did not exhaust its generator")
