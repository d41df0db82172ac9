"""G: replicas join, leave and are replaced between syncs; everyone who is in has the whole set."""

from __future__ import annotations

from actor_wg_engine.conformance.catalog import check
from actor_wg_engine.conformance.checks_d_memory import require_flat
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.fleet import Fleet, FleetReplica
from actor_wg_engine.conformance.results import CheckFailed


@check("G50")
def check_add(factory: EngineFactory) -> None:
    """A replica that is added between two syncs gets the full set; the old ones still match."""
    with Fleet(factory, replicas=(1,)) as fleet:
        fleet.update(1)
        fleet.add(2)
        fleet.update(2)
        fleet.require_served(2, workers=3)


@check("G51")
def check_remove(factory: EngineFactory) -> None:
    """A replica that is removed is not waited for, and the ranks of the rest are renumbered."""
    with Fleet(factory, replicas=(1, 1, 1)) as fleet:
        fleet.update(1)
        gone = fleet.remove(0)
        for worker in gone.handles:
            worker.kill()
        fleet.update(2)
        fleet.require_served(2, workers=2)


@check("G52")
def check_replace(factory: EngineFactory) -> None:
    """A replica whose process was replaced by another one gets the full set."""
    with Fleet(factory, replicas=(1, 1)) as fleet:
        fleet.update(1)
        for worker in fleet.remove(1).handles:
            worker.kill()
        fleet.add(1)
        fleet.update(2)
        fleet.require_served(2, workers=2)


@check("G53", advisory=True)
def check_remove_all(factory: EngineFactory) -> None:
    """With all replicas removed an update does nothing or says so; adding one again works."""
    with Fleet(factory, replicas=(1,)) as fleet:
        fleet.update(1)
        replica = fleet.remove(0)
        try:
            fleet.update(2)
        except ValueError as error:
            if "replica" not in str(error):
                raise CheckFailed(f"the error does not name the replicas: {error}") from error
        fleet.add_again(replica)
        fleet.update(3)
        fleet.require_served(3, workers=1)


@check("G54", deadline=60)
def check_many_joins(factory: EngineFactory) -> None:
    """Over 50 joins and leaves the workers that stay hold no more than before."""
    with Fleet(factory, replicas=(1, 1), bucket_size=256 << 10) as fleet:
        guest = fleet.replicas[1]
        for step in range(1, 7):
            _join_and_leave(fleet, guest, step)
        stays = [fleet.actors[0], fleet.rollouts[0]]
        before = [worker.call("resources") for worker in stays]
        for step in range(7, 57):
            _join_and_leave(fleet, guest, step)
        for worker, old in zip(stays, before, strict=True):
            require_flat(worker.name, old, worker.call("resources"))


def _join_and_leave(fleet: Fleet, guest: FleetReplica, step: int) -> None:
    fleet.update(step)
    fleet.require_served(step)
    if step % 2:
        fleet.remove(1)
    else:
        fleet.add_again(guest)


@check("G55")
def check_late_joiner(factory: EngineFactory) -> None:
    """A late joiner is told to generate only after it has the current version."""
    with Fleet(factory, replicas=(1,)) as fleet:
        fleet.update(1)
        joiner = fleet.add(1)
        joiner.calls.clear()
        fleet.update(2)
        fleet.require_served(2, workers=2)
        if joiner.calls and "resume_generation" in joiner.calls:
            versions = joiner.versions_at_resume
            if any(version != 2 for version in versions):
                raise CheckFailed(f"the joiner was resumed with versions {versions}")
