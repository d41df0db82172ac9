"""C: what arrives is what was sent, byte for byte, on every rollout rank, into poisoned memory."""

from __future__ import annotations

from actor_wg_engine.conformance.catalog import check
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.probe import Consume, Produce
from actor_wg_engine.conformance.processes import DeadlineError
from actor_wg_engine.conformance.results import CheckFailed
from actor_wg_engine.conformance.session import MIB, Outcome, Session, require_same
from actor_wg_engine.conformance.weights import Recipe, fingerprints, recipe

KIB = 1 << 10


def deliver(factory: EngineFactory, *recipes: Recipe, bucket_size: int = MIB) -> None:
    """Each recipe in a sync of its own must reach two rollout workers unchanged."""
    with Session(factory, rollouts=2, bucket_size=bucket_size, poison=True) as session:
        for step, one in enumerate(recipes, start=1):
            session.expect(one, step)


def require_no_success(outcome: Outcome, what: str) -> None:
    """Fail when any receiver takes the sync for a whole one, or the sender does."""
    for index, received in enumerate(outcome.received):
        if not isinstance(received, BaseException):
            raise CheckFailed(f"{what}: rollout {index} ended as if all had arrived")
        if isinstance(received, DeadlineError):
            raise CheckFailed(f"{what}: rollout {index} hangs")
    if not isinstance(outcome.sent[0], BaseException):
        raise CheckFailed(f"{what}: send_weights ended without an error")
    if isinstance(outcome.sent[0], DeadlineError):
        raise CheckFailed(f"{what}: send_weights hangs")


@check("C17", advisory=True)
def check_dtypes(factory: EngineFactory) -> None:
    """Every dtype from uint8 to complex64 arrives, also after a tensor of an odd number of bytes."""
    deliver(factory, recipe("ladder"), recipe("unaligned"), recipe("unaligned", seed=9))


@check("C18", advisory=True)
def check_shapes(factory: EngineFactory) -> None:
    """Scalars, empty tensors, single elements and odd sizes keep their shape, and none is lost."""
    deliver(factory, recipe("shapes"))


@check("C19")
def check_special_values(factory: EngineFactory) -> None:
    """NaN payloads, negative zero, subnormals and infinities keep their bits."""
    deliver(factory, recipe("special_values"))


@check("C20", advisory=True)
def check_layouts(factory: EngineFactory) -> None:
    """Transposed, sliced, expanded tensors, parameters and inference tensors can be sent."""
    deliver(factory, recipe("layouts"))


@check("C21")
def check_tied_names(factory: EngineFactory) -> None:
    """Names that share one storage all arrive."""
    deliver(factory, recipe("tied"))


@check("C22", advisory=True)
def check_around_the_bucket(factory: EngineFactory) -> None:
    """Tensors of a bucket, a byte more or less, and ten buckets arrive; so with an odd bucket size."""
    for bucket in (64 * KIB, 64 * KIB + 4097):
        deliver(factory, recipe("around_bucket", bucket=bucket), bucket_size=bucket)


@check("C22b", advisory=True)
def check_bucket_size_is_validated(factory: EngineFactory) -> None:
    """A bucket size of zero or less is refused when the engine is made."""
    for size in (0, -1):
        try:
            factory(bucket_size=size)
        except (ValueError, TypeError) as error:
            if "bucket" not in str(error):
                raise CheckFailed(f"the error does not name the bucket size: {error}") from error
            continue
        raise CheckFailed(f"bucket_size={size} is accepted")


@check("C23", deadline=45)
def check_bucket_size_and_order_do_not_matter(factory: EngineFactory) -> None:
    """The result is the same for five bucket sizes and for the reverse order of tensors."""
    for bucket in (4 * KIB, 16 * KIB + 16, 64 * KIB, MIB, 4 * MIB):
        with Session(factory, rollouts=1, bucket_size=bucket, poison=True) as session:
            session.expect(recipe("mixed", seed=1), 1)
            session.expect(recipe("mixed", seed=1, reverse=True), 2)


@check("C24", advisory=True)
def check_duplicate_names(factory: EngineFactory) -> None:
    """A name that comes twice is an error on both sides, in one bucket or in two."""
    for bucket in (4 * KIB, MIB):
        with Session(factory, rollouts=1, bucket_size=bucket) as session:
            outcome = session.sync(recipe("duplicate"), 1)
            require_no_success(outcome, "a duplicate name")
            if "weight.0" not in str(outcome.sent[0]):
                raise CheckFailed(f"the sender's error does not name the tensor: {outcome.sent[0]}")
            session.expect(recipe("mixed"), 2)


@check("C25", advisory=True)
def check_empty_stream(factory: EngineFactory) -> None:
    """An empty stream is legal: no tensor arrives, and the next sync works."""
    with Session(factory) as session:
        outcome = session.sync(recipe("nothing"), 1)
        for received in outcome.receivers():
            require_same(received.prints, [], "a receiver")
        session.expect(recipe("mixed"), 2)


@check("C26")
def check_dtypes_are_kept(factory: EngineFactory) -> None:
    """No dtype is changed on the way: integers stay integers."""
    with Session(factory, rollouts=1) as session:
        outcome = session.sync(recipe("mixed", seed=3), 1)
        sent = {one.name: one.dtype for one in fingerprints(recipe("mixed", seed=3).stream())}
        for one in outcome.receivers()[0].prints:
            if sent.get(one.name) != one.dtype:
                raise CheckFailed(f"{one.name}: {sent.get(one.name)} became {one.dtype}")


@check("C27")
def check_ten_syncs(factory: EngineFactory) -> None:
    """Ten syncs of other values: no byte of an earlier one is left."""
    with Session(factory, rollouts=2, bucket_size=64 * KIB, poison=True) as session:
        for step in range(1, 11):
            session.expect(recipe("mixed", seed=step, reverse=step % 2 == 0), step)


@check("C28", advisory=True)
def check_generator_that_raises(factory: EngineFactory) -> None:
    """A generator that raises midway is an error on both sides, and the next sync works."""
    for at in (0, 5):
        with Session(factory, rollouts=2, bucket_size=16 * KIB) as session:
            outcome = session.sync(recipe("mixed"), 1, produce=Produce(raise_at=at))
            require_no_success(outcome, "a generator that raised")
            if "generator broke" not in str(outcome.sent[0]):
                raise CheckFailed(f"the sender's error hides the generator's: {outcome.sent[0]}")
            session.expect(recipe("mixed"), 2)


@check("C28b")
def check_generator_is_ended(factory: EngineFactory) -> None:
    """After a failure the generator of every actor was exhausted or closed."""
    with Session(factory, actors=2, rollouts=1, bucket_size=16 * KIB) as session:
        session.sync(recipe("mixed"), 1, produce=[Produce(), Produce(raise_at=3)])
        session.expect(recipe("mixed"), 2)
        session.sync(recipe("duplicate"), 3)
        for worker in session.actors:
            if not worker.call("generator_ended"):
                raise CheckFailed(f"{worker.name} left its generator suspended")


@check("C29", advisory=True)
def check_truncated_stream(factory: EngineFactory) -> None:
    """A sender that dies inside a split tensor does not leave a receiver with a part of the set."""
    stream = recipe("blocks", count=4, nbytes=MIB)
    with Session(factory, rollouts=2, bucket_size=64 * KIB, timeout=20) as session:
        session.open()
        sending, receiving = session.transfer(
            stream, 1, produce=Produce(gate_at=2), consume=Consume(count_only=True)
        )
        session.actors[0].wait_event("producer waits")
        session.actors[0].kill()
        outcome = session.outcome(sending, receiving)
        require_no_success(outcome, "a stream cut by the sender's death")


@check("C30")
def check_source_may_change_after_send(factory: EngineFactory) -> None:
    """Sources overwritten right after send_weights returned do not change what receivers have."""
    with Session(factory, rollouts=2, bucket_size=64 * KIB) as session:
        for step in (1, 2):
            session.expect(
                recipe("mixed", seed=step),
                step,
                produce=Produce(spoil=True),
                consume=Consume(keep=True),
            )


@check("C30b")
def check_generator_may_reuse_memory(factory: EngineFactory) -> None:
    """A tensor is copied before the next is asked for: a generator may overwrite it then."""
    with Session(factory, rollouts=1, bucket_size=64 * KIB) as session:
        session.expect(recipe("mixed", seed=4), 1, produce=Produce(reuse=True))


@check("C31")
def check_names(factory: EngineFactory) -> None:
    """Names with dots, spaces, quotes and letters beyond ASCII, and one of 4 KB, arrive unchanged."""
    deliver(factory, recipe("long_names"))


@check("C31b", advisory=True)
def check_tensors_that_cannot_be_sent(factory: EngineFactory) -> None:
    """Sparse and meta tensors are refused by name, on both sides, and the next sync works."""
    for kind in ("sparse", "meta"):
        with Session(factory, rollouts=1) as session:
            outcome = session.sync(recipe(kind), 1)
            require_no_success(outcome, f"a {kind} tensor")
            if kind not in str(outcome.sent[0]):
                raise CheckFailed(f"the sender's error does not name the tensor: {outcome.sent[0]}")
            session.expect(recipe("mixed"), 2)
