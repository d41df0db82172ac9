"""D: weights stream through a bounded number of buckets, and nothing piles up over many syncs."""

from __future__ import annotations

import time

from actor_wg_engine.conformance.catalog import check
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.links import loopback_bytes, own_network
from actor_wg_engine.conformance.probe import Consume, Produce, Resources
from actor_wg_engine.conformance.processes import WorkerHandle
from actor_wg_engine.conformance.results import CheckFailed
from actor_wg_engine.conformance.session import MIB, Session
from actor_wg_engine.conformance.weights import recipe

BUCKETS_A_SIDE = 3
SLACK = 12 * MIB  # what allocators keep, and code that is touched late
SMALL_BLOCKS = recipe("blocks", count=60, nbytes=8 << 10)  # several of them in each bucket
SETTLED = 0.4  # seconds without another pull after which a sender counts as stalled


def stalled_at(sender: WorkerHandle, limit: float = 10.0) -> int:
    """Bytes that the sender has pulled when it no longer pulls more."""
    pulled, since, ends = -1, time.monotonic(), time.monotonic() + limit
    while time.monotonic() < ends:
        now = sender.call("pulled")
        if now != pulled:
            pulled, since = now, time.monotonic()
        elif time.monotonic() - since > SETTLED:
            return pulled
        time.sleep(0.02)
    raise CheckFailed("the sender never stalled although the consumer stands still")


@check("D32")
def check_streaming(factory: EngineFactory) -> None:
    """A receiver has its first tensor before the sender's generator is exhausted."""
    with Session(factory, rollouts=1, bucket_size=256 << 10) as session:
        session.open()
        sending, receiving = session.transfer(
            recipe("blocks", count=16, nbytes=256 << 10), 1, produce=Produce(gate_at=12)
        )
        session.actors[0].wait_event("producer waits")
        try:
            session.rollouts[0].wait_event("first tensor", 5)
        except AssertionError as error:
            raise CheckFailed("no tensor is yielded before the generator ends") from error
        session.actors[0].call("release", "producer")
        session.outcome(sending, receiving).require_success()


@check("D33")
def check_look_ahead(factory: EngineFactory) -> None:
    """While the consumer stands still, the sender pulls no more than a few buckets ahead."""
    bucket, count = 4 * MIB, 40
    with Session(factory, rollouts=1, bucket_size=bucket) as session:
        session.open()
        sending, receiving = session.transfer(
            recipe("blocks", count=count, nbytes=bucket),
            1,
            consume=Consume(gate_at=0, count_only=True),
        )
        session.rollouts[0].wait_event("consumer waits")
        ahead = stalled_at(session.actors[0]) / bucket
        session.rollouts[0].call("release", "consumer")
        session.outcome(sending, receiving).require_success()
        # both sides' buckets, the tensor in the generator, and what the kernel buffers for TCP
        if ahead > 2 * BUCKETS_A_SIDE + 6:
            raise CheckFailed(f"the sender ran {ahead:.0f} buckets ahead of {count}")


@check("D34")
def check_peak_memory(factory: EngineFactory) -> None:
    """Extra memory stays within three buckets and the largest tensor, on both sides."""
    bucket, largest, count = 4 * MIB, 8 * MIB, 24
    stream = recipe("blocks", count=count, nbytes=largest)
    with Session(factory, rollouts=1, bucket_size=bucket) as session:
        session.sync(recipe("blocks", count=1, nbytes=largest), 1).require_success()
        outcome = session.sync(stream, 2, consume=Consume(count_only=True))
        limit = BUCKETS_A_SIDE * bucket + largest + largest + SLACK
        for who, peak in (
            ("sender", outcome.senders()[0].peak),
            ("receiver", outcome.receivers()[0].peak),
        ):
            if peak > limit:
                raise CheckFailed(
                    f"the {who} took {peak / MIB:.0f} MiB more for {count * largest // MIB} MiB in "
                    f"buckets of {bucket // MIB} MiB; the limit is {limit / MIB:.0f} MiB"
                )


@check("D35")
def check_back_pressure(factory: EngineFactory) -> None:
    """A consumer slower than the sender slows it down; memory does not grow."""
    bucket = MIB
    with Session(factory, rollouts=1, bucket_size=bucket) as session:
        # the first sync touches code and libraries for the first time, which grows a process too
        session.sync(recipe("blocks", count=1, nbytes=bucket), 1).require_success()
        outcome = session.sync(
            recipe("blocks", count=96, nbytes=bucket),
            2,
            consume=Consume(pause=0.01, count_only=True),
        )
        for who, peak in (
            ("sender", outcome.senders()[0].peak),
            ("receiver", outcome.receivers()[0].peak),
        ):
            if peak > 2 * BUCKETS_A_SIDE * bucket + SLACK:
                raise CheckFailed(f"the {who} grew by {peak / MIB:.0f} MiB behind a slow consumer")


@check("D36")
def check_yielded_tensor_stays(factory: EngineFactory) -> None:
    """A yielded tensor does not change while the consumer has it, until the next is asked for."""
    with Session(factory, rollouts=2, bucket_size=32 << 10, poison=True) as session:
        outcome = session.expect(SMALL_BLOCKS, 1, consume=Consume(recheck=True, pause=0.005))
        for received in outcome.receivers():
            if received.changed:
                raise CheckFailed(f"changed under the consumer: {', '.join(received.changed[:4])}")


@check("D36b", advisory=True)
def check_yielded_tensor_is_owned(factory: EngineFactory) -> None:
    """A yielded tensor belongs to the consumer: none changes until the end of the sync."""
    with Session(factory, rollouts=2, bucket_size=32 << 10, poison=True) as session:
        outcome = session.expect(SMALL_BLOCKS, 1, consume=Consume(keep=True))
        for received in outcome.receivers():
            if received.changed:
                raise CheckFailed(f"overwritten later: {', '.join(received.changed[:4])}")


@check("D37", deadline=60)
def check_resources_are_flat(factory: EngineFactory) -> None:
    """Descriptors, threads, sockets, shared memory and resident memory are flat over 50 syncs."""
    with Session(factory, rollouts=2, bucket_size=256 << 10) as session:
        for step in range(1, 6):
            session.sync(recipe("mixed", seed=step), step).require_success()
        before = [worker.call("resources") for worker in session.workers]
        for step in range(6, 56):
            session.sync(recipe("mixed", seed=step), step).require_success()
        for worker, old in zip(session.workers, before, strict=True):
            require_flat(worker.name, old, worker.call("resources"))


def require_flat(who: str, old: Resources, new: Resources, grown: int = 5 * MIB) -> None:
    """Fail when a process holds more than before, up to a little noise."""
    for field, allowed in (
        ("descriptors", 1),
        ("threads", 1),
        ("sockets", 1),
        ("segments", 0),
        ("resident", grown),
    ):
        was, now = getattr(old, field), getattr(new, field)
        if now > was + allowed:
            raise CheckFailed(f"{who}: {field} went from {was} to {now}")


@check("D38")
def check_bytes_on_the_wire(factory: EngineFactory) -> None:
    """No link carries more than the payload and a little, also where buckets are partly filled."""
    bucket = MIB
    stream = recipe("blocks", count=48, nbytes=bucket // 4 * 3)
    network = own_network()
    with Session(factory, rollouts=2, bucket_size=bucket, network=network) as session:
        session.sync(recipe("mixed"), 1).require_success()
        before = loopback_bytes()
        session.sync(stream, 2, consume=Consume(count_only=True)).require_success()
        carried = loopback_bytes() - before
        payload = 2 * 48 * (bucket // 4 * 3)
        if carried > payload * 1.08 + 2 * MIB:
            raise CheckFailed(
                f"{carried / MIB:.0f} MiB on the wire for {payload / MIB:.0f} MiB of payload"
            )
