"""What the manager knows about each replica: its label, its version, and whether it may be served."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from actor_wg_engine.errors import TopologyError


class Member(NamedTuple):
    """One worker of a sync, named for messages."""

    label: str
    """ "actor", or the replica's label."""
    rank: int
    """Rank within the actor worker group or within the replica."""

    def __str__(self) -> str:
        return f"{self.label} rank {self.rank}"


@dataclass
class Tracked:
    """A replica under the manager's care."""

    replica: Any
    label: str
    version: int | None = None
    quarantine: str | None = None
    """Why it must not be served; None while it may."""
    dead: bool = False
    """It cannot take part in a sync; else a quarantined replica is brought back by the next one."""

    @property
    def workers(self) -> list[Any]:
        """The handles of its workers, by rank."""
        return list(self.replica.workers)

    @property
    def members(self) -> list[Member]:
        """Its workers, named."""
        return [Member(self.label, rank) for rank in range(len(self.replica.workers))]

    def shut_out(self, reason: str, *, dead: bool) -> None:
        """Put it into quarantine; the first reason stays."""
        self.quarantine = self.quarantine or reason
        self.dead = self.dead or dead


def track(replicas: Iterable[Any], known: Sequence[Tracked] = ()) -> list[Tracked]:
    """Begin to track replicas.

    Args:
        replicas: the new ones.
        known: those that are tracked already.

    Raises:
        TopologyError: a replica, or one of its workers, is there twice.
    """
    result: list[Tracked] = []
    labels = {entry.label for entry in known}
    for replica in replicas:
        present = [*known, *result]
        if any(entry.replica is replica for entry in present):
            raise TopologyError(f"the replica {replica!r} was given twice; each may come once")
        for entry in present:
            shared = [
                w
                for w in replica.workers
                if any(w is other or w == other for other in entry.workers)
            ]
            if shared:
                raise TopologyError(f"a worker of the new replica also belongs to {entry.label}")
        label = base = f"replica {getattr(replica, 'replica_rank', len(present))}"
        counter = 2
        while label in labels:
            label, counter = f"{base} ({counter})", counter + 1
        labels.add(label)
        result.append(Tracked(replica, label))
    return result
