"""B: ranks, world sizes and peers that build_topology gives out, for many worlds, without any I/O."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from actor_wg_engine.conformance.catalog import check
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.fleet import Fleet
from actor_wg_engine.conformance.results import CheckFailed, CheckSkipped
from actor_wg_engine.conformance.session import Session, describe
from actor_wg_engine.conformance.weights import recipe

ACTORS = (1, 2, 8)
ROLLOUTS = (1, 2, 3, 8, 30)
Side = dict[str, list[Any]]


@contextlib.contextmanager
def prepared(factory: EngineFactory, actors: int, rollouts: int) -> Iterator[list[Any]]:
    """The metadata of a whole world, from engines that all live in this process."""
    engines = [
        factory(bucket_size=1 << 16, is_master=index == 0) for index in range(actors + rollouts)
    ]
    try:
        try:
            yield [engine.prepare() for engine in engines]
        except NotImplementedError as error:
            raise CheckSkipped("the engine forms no group: prepare is not implemented") from error
    finally:
        for engine in engines:
            with contextlib.suppress(NotImplementedError):
                engine.finalize()


def worlds(factory: EngineFactory) -> Iterator[tuple[int, int, Side, Side]]:
    """The topology of each world of the table."""
    with prepared(factory, max(ACTORS), max(ROLLOUTS)) as metadata:
        for actors, rollouts in itertools.product(ACTORS, ROLLOUTS):
            own = metadata[:actors] + metadata[max(ACTORS) : max(ACTORS) + rollouts]
            try:
                senders, receivers = factory.engine_class().build_topology(actors, rollouts, own)
            except Exception as error:
                raise CheckFailed(
                    f"{actors} actors and {rollouts} rollouts: {describe(error)}"
                ) from error
            yield actors, rollouts, senders, receivers


@check("B9")
def check_list_lengths(factory: EngineFactory) -> None:
    """Every list of the topology has one entry for each worker of its group."""
    for actors, rollouts, senders, receivers in worlds(factory):
        for who, size, kwargs in (("actors", actors, senders), ("rollouts", rollouts, receivers)):
            for key, values in kwargs.items():
                if len(values) != size:
                    raise CheckFailed(
                        f"{actors}+{rollouts}: {key} of the {who} must have {size} entries"
                    )


def _ranks(senders: Side, receivers: Side) -> tuple[list[int], list[int]]:
    if "rank" not in senders or "rank" not in receivers:
        raise CheckSkipped('the topology has no "rank"')
    return senders["rank"], receivers["rank"]


@check("B10")
def check_ranks(factory: EngineFactory) -> None:
    """Ranks of the group are unique and count from 0; every worker is told the same world size."""
    for actors, rollouts, senders, receivers in worlds(factory):
        inside = sorted(rank for side in _ranks(senders, receivers) for rank in side if rank >= 0)
        if inside != list(range(len(inside))):
            raise CheckFailed(f"{actors}+{rollouts}: ranks are {inside}")
        pairs = [
            (rank, size)
            for side in (senders, receivers)
            for rank, size in zip(side["rank"], side.get("world_size", []), strict=False)
        ]
        sizes = {size for rank, size in pairs if rank >= 0}
        if sizes and sizes != {len(inside)}:
            raise CheckFailed(
                f"{actors}+{rollouts}: world sizes {sorted(sizes)} for {len(inside)} ranks"
            )


@check("B11")
def check_source(factory: EngineFactory) -> None:
    """Actor rank 0 is in the group, all rollouts are; actors that are not are -1 and accept init."""
    for actors, rollouts, senders, receivers in worlds(factory):
        actor_ranks, rollout_ranks = _ranks(senders, receivers)
        if actor_ranks[0] != 0:
            raise CheckFailed(f"{actors}+{rollouts}: actor rank 0 has group rank {actor_ranks[0]}")
        if any(rank < -1 for rank in actor_ranks):
            raise CheckFailed(f"{actors}+{rollouts}: actor ranks {actor_ranks}")
        if any(rank < 1 for rank in rollout_ranks):
            raise CheckFailed(f"{actors}+{rollouts}: rollout ranks {rollout_ranks}")
    with Session(factory, actors=3, rollouts=1) as session:
        outcome = session.expect(recipe("mixed"), 1)
        for index, sent in enumerate(outcome.senders()):
            if not sent.closed or sent.exhausted_at is None:
                raise CheckFailed(f"actor {index} did not exhaust its generator")


@check("B12")
def check_metadata_order(factory: EngineFactory) -> None:
    """Metadata is taken as actors first, then rollouts, in their order."""
    cls = factory.engine_class()
    with prepared(factory, 2, 3) as metadata:
        straight = pickle.dumps(cls.build_topology(2, 3, metadata))
        turned = [*metadata[2:], *metadata[:2]]
        try:
            other = pickle.dumps(cls.build_topology(2, 3, turned))
        except Exception:  # noqa: BLE001 - refusing the wrong order is as good as using it
            return
        if other == straight:
            raise CheckSkipped("the topology does not depend on the metadata")


@check("B13")
def check_ring(factory: EngineFactory) -> None:
    """In a ring, the next of each rank has it as its previous, and the chain is one."""
    for actors, rollouts, senders, receivers in worlds(factory):
        actor_ranks, rollout_ranks = _ranks(senders, receivers)
        before = next((key for key in senders if key.startswith("prev")), None)
        after = next((key for key in senders if key.startswith("next")), None)
        if before is None or after is None:
            raise CheckSkipped("the topology is no ring")
        chain = {
            rank: (side[before][index], side[after][index])
            for side, ranks in ((senders, actor_ranks), (receivers, rollout_ranks))
            for index, rank in enumerate(ranks)
            if rank >= 0
        }
        ends = [rank for rank, (_, peer) in chain.items() if peer is None]
        starts = [rank for rank, (peer, _) in chain.items() if peer is None]
        if len(ends) > 1 or len(starts) > 1:
            raise CheckFailed(
                f"{actors}+{rollouts}: starts {starts} and ends {ends}: more than one chain"
            )
        keys = [pickle.dumps(peer) for peer, _ in chain.values() if peer is not None]
        if len(set(keys)) != len(keys):
            raise CheckFailed(f"{actors}+{rollouts}: two ranks have the same previous peer")
        for rank, (_, peer) in sorted(chain.items()):
            if isinstance(peer, int) and chain[peer][0] != rank:
                raise CheckFailed(
                    f"{actors}+{rollouts}: rank {rank} hands on to {peer}, which listens to {chain[peer][0]}"
                )


@check("B14")
def check_smallest_worlds(factory: EngineFactory) -> None:
    """One rollout worker works."""
    with Session(factory, actors=1, rollouts=1) as session:
        session.expect(recipe("mixed"), 1)


@check("B14b", advisory=True)
def check_no_rollouts(factory: EngineFactory) -> None:
    """No rollout worker at all is refused with an error that says so."""
    cls = factory.engine_class()
    with prepared(factory, 1, 1) as metadata:
        try:
            cls.build_topology(1, 0, metadata[:1])
        except (ValueError, AssertionError) as error:
            if "rollout" in str(error).lower() or "replica" in str(error).lower():
                return
            raise CheckFailed(f"the error does not name the rollouts: {describe(error)}") from error
        except Exception as error:
            raise CheckFailed(f"unclear error: {describe(error)}") from error
    raise CheckFailed("a world without rollouts is not refused")


@check("B15")
def check_replicas_of_many_sizes(factory: EngineFactory) -> None:
    """Replicas of one, two and four workers sync together."""
    with Fleet(factory, replicas=(1, 2, 4)) as fleet:
        fleet.update(1)
        fleet.require_served(1)


@check("B16")
def check_shared_device(factory: EngineFactory) -> None:
    """Two ranks on one physical device are served, or refused with both ranks named."""
    cls = factory.engine_class()
    with prepared(factory, 1, 2) as metadata:
        if not all(isinstance(entry, Mapping) and "device" in entry for entry in metadata):
            raise CheckSkipped("the metadata does not name a device")
        shared = [{**entry, "device": f"GPU-{index // 2}"} for index, entry in enumerate(metadata)]
        try:
            cls.build_topology(1, 2, shared)
        except ValueError as error:
            if "0" in str(error) and "1" in str(error):
                return
            raise CheckFailed(f"the error does not name both ranks: {describe(error)}") from error
    if factory.device != "cpu":
        raise CheckFailed("two ranks on one device are not refused")
    raise CheckSkipped("the engine accepts a shared device; whether it works shows on a GPU only")
