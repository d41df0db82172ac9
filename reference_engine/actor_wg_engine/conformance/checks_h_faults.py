"""H: something dies, freezes or raises; it ends in bounded time, names the worker, and the next sync works.

After every fault each replica that may be served holds exactly one version, and the gates of all that
can serve are open again.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from actor_wg_engine.conformance.catalog import check
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.fleet import Fleet
from actor_wg_engine.conformance.probe import Consume, Produce
from actor_wg_engine.conformance.processes import DeadlineError, WorkerHandle, gather, settle
from actor_wg_engine.conformance.results import CheckFailed
from actor_wg_engine.conformance.session import Session
from actor_wg_engine.conformance.weights import recipe

SMALL = 16 << 10
LAST = 9  # index of the last tensor of the "mixed" recipe


def fault(factory: EngineFactory, strike: Callable[[Fleet], None], victim: int = 1) -> None:
    """Sync, let `strike` hit rollout worker `victim` during the next sync, and judge what is left."""
    with Fleet(factory, replicas=(1, 1, 1), bucket_size=SMALL, timeout=4) as fleet:
        fleet.update(1)
        strike(fleet)
        fleet.fail(2, names=(f"replica {victim}", f"rollout {victim}"))
        fleet.require_never_mixed()
        fleet.require_gates_open(but=victim)
        fleet.replace(victim)
        fleet.update(3)
        fleet.require_served(3, workers=3)
        fleet.require_gates_open()


def kill_when(fleet: Fleet, worker: int, at: int) -> None:
    """Kill a rollout worker as soon as it is about to take tensor `at`."""
    handle = fleet.rollouts[worker]
    handle.call("behave", Consume(gate_at=at))
    fleet.during(lambda: strike_at(handle, "consumer waits"))


def strike_at(handle: WorkerHandle, event: str, signum: int = signal.SIGKILL) -> None:
    """Send a signal to a worker when it comes to an event."""
    handle.wait_event(event)
    handle.kill(signum)


@check("H56", advisory=True, deadline=40)
def check_rollout_killed_before(factory: EngineFactory) -> None:
    """A rollout worker killed before the sync."""
    fault(factory, lambda fleet: fleet.rollouts[1].kill())


@check("H56b", advisory=True, deadline=40)
def check_rollout_killed_during(factory: EngineFactory) -> None:
    """A rollout worker killed while data flows."""
    fault(factory, lambda fleet: kill_when(fleet, 1, 3))


@check("H56c", advisory=True, deadline=40)
def check_rollout_killed_after(factory: EngineFactory) -> None:
    """A rollout worker killed when it has all data and has not yet said so."""
    fault(factory, lambda fleet: kill_when(fleet, 1, LAST))


@check("H57", advisory=True, deadline=40)
def check_source_killed(factory: EngineFactory) -> None:
    """Actor rank 0 killed: the error names it, no replica is served with a mix."""
    with Fleet(factory, replicas=(1, 1), bucket_size=SMALL, timeout=4) as fleet:
        fleet.update(1)
        fleet.actors[0].call("behave", Produce(gate_at=5))
        fleet.during(lambda: strike_at(fleet.actors[0], "producer waits"))
        fleet.fail(2, names=("actor 0", "actor rank 0", "actor_wg"))
        fleet.require_never_mixed()


@check("H57b", advisory=True, deadline=40)
def check_idle_actor_killed(factory: EngineFactory) -> None:
    """An actor outside the group killed: the error names it, no replica is served with a mix."""
    with Fleet(factory, replicas=(1, 1), actors=2, bucket_size=SMALL, timeout=4) as fleet:
        fleet.update(1)
        fleet.actors[1].call("behave", Produce(gate_at=5))
        fleet.during(lambda: strike_at(fleet.actors[1], "producer waits"))
        fleet.fail(2, names=("actor 1", "actor rank 1", "actor_wg"))
        fleet.require_never_mixed()


@check("H58", advisory=True, deadline=50)
def check_rollout_frozen(factory: EngineFactory) -> None:
    """A rollout worker that is frozen, not dead: a timeout that names it."""

    def strike(fleet: Fleet) -> None:
        handle = fleet.rollouts[1]
        handle.call("behave", Consume(gate_at=3))
        fleet.during(lambda: strike_at(handle, "consumer waits", signal.SIGSTOP))

    fault(factory, strike)


@check("H59", advisory=True, deadline=40)
def check_consumer_raises(factory: EngineFactory) -> None:
    """A consumer that raises on one rank: the others finish, it is named."""
    fault(factory, lambda fleet: fleet.rollouts[1].call("behave", Consume(raise_at=4)))


@check("H59b", advisory=True, deadline=40)
def check_generator_raises(factory: EngineFactory) -> None:
    """A generator that raises: every replica is left whole or quarantined, and the next sync works."""
    with Fleet(factory, replicas=(1, 1), bucket_size=SMALL, timeout=4) as fleet:
        fleet.update(1)
        fleet.actors[0].call("behave", Produce(raise_at=5))
        fleet.fail(2, names=("generator broke",))
        fleet.require_never_mixed()
        fleet.actors[0].call("behave", Produce())
        fleet.recover(None, 3)
        fleet.require_served(3)
        fleet.require_gates_open()


@check("H59c", advisory=True)
def check_sender_is_told(factory: EngineFactory) -> None:
    """send_weights ends with an error when a receiver did not get everything."""
    with Session(factory, rollouts=2, bucket_size=SMALL) as session:
        outcome = session.sync(
            recipe("mixed"), 1, consume=[Consume(), Consume(raise_at=5)], timeout=10
        )
        if not isinstance(outcome.received[1], BaseException):
            raise CheckFailed("the consumer's error was lost")
        if not isinstance(outcome.sent[0], BaseException):
            raise CheckFailed("send_weights succeeded although a consumer had raised")
        if isinstance(outcome.sent[0], DeadlineError):
            raise CheckFailed("send_weights hangs after a consumer raised")


@check("H61", advisory=True, deadline=40)
def check_in_place_servers_are_not_served_mixed(factory: EngineFactory) -> None:
    """A server that writes in place and was cut off is not served again before it is whole."""
    with Fleet(factory, replicas=(1, 1), bucket_size=SMALL, in_place=True, timeout=4) as fleet:
        fleet.update(1)
        fleet.rollouts[0].call("behave", Consume(raise_at=5))
        fleet.fail(2, names=("replica 0",))
        fleet.require_never_mixed()
        fleet.require_not_serving(0)
        if fleet.replicas[0].serving:
            raise CheckFailed("replica 0 holds a mix and is served")
        fleet.rollouts[0].call("behave", Consume())
        fleet.recover(None, 3)
        fleet.require_served(3)
        fleet.require_never_mixed()
        fleet.require_gates_open()


@check("H60", advisory=True, deadline=50)
def check_rendezvous_never_completes(factory: EngineFactory) -> None:
    """A worker that never comes to the rendezvous: a timeout that names it, and the next sync works."""

    def strike(fleet: Fleet) -> None:
        handle = fleet.rollouts[1]
        handle.call("behave", Consume(stall_init=True))

    with Fleet(factory, replicas=(1, 1, 1), bucket_size=SMALL, timeout=4) as fleet:
        strike(fleet)
        started = time.monotonic()
        fleet.fail(1, names=("replica 1", "rollout 1"))
        if time.monotonic() - started > 12:
            raise CheckFailed(f"it took {time.monotonic() - started:.0f} s")
        fleet.replace(1)
        fleet.update(2)
        fleet.require_served(2, workers=3)
        fleet.require_gates_open()


@check("H63", deadline=40)
def check_two_groups_at_once(factory: EngineFactory) -> None:
    """Two groups on one machine do not disturb each other's ports, names and memory."""
    with Session(factory, rollouts=1) as one, Session(factory, rollouts=2) as two:
        refs = [*one.init(), *two.init()]
        gather(refs, 20)
        one.opened = two.opened = True
        pairs = [
            one.transfer(recipe("mixed", seed=1), 1),
            two.transfer(recipe("mixed", seed=2), 1),
        ]
        for session, (sending, receiving) in zip((one, two), pairs, strict=True):
            session.outcome(sending, receiving).require_success()
            session.finalize()
        one.expect(recipe("mixed", seed=3), 2)
        two.expect(recipe("mixed", seed=4), 2)


@check("H63b", deadline=40)
def check_after_a_crash(factory: EngineFactory) -> None:
    """What a group left behind when all of its processes were killed does not stop the next one."""
    with Session(factory, rollouts=2, bucket_size=SMALL) as session:
        session.open()
        refs = session.transfer(recipe("mixed"), 1, produce=Produce(gate_at=5))
        session.actors[0].wait_event("producer waits")
        for worker in session.workers:
            worker.kill()
        settle([*refs[0], *refs[1]], 10)
    with Session(factory, rollouts=2, bucket_size=SMALL) as session:
        session.expect(recipe("mixed"), 1)
