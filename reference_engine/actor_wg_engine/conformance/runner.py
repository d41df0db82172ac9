"""Runs checks one by one: each in a fresh driver process of its own, ended at its deadline."""

from __future__ import annotations

import asyncio
import importlib
import time
import traceback

from actor_wg_engine.conformance import nursery
from actor_wg_engine.conformance.catalog import Check
from actor_wg_engine.conformance.factory import EngineFactory
from actor_wg_engine.conformance.processes import DeadlineError, WorkerDiedError, WorkerHandle
from actor_wg_engine.conformance.results import CheckResult, CheckSkipped, Status

_DRIVER = f"{__name__}:Driver"


class EngineNotFoundError(ValueError):
    """The engine that was asked for cannot be imported; the text says why."""


class Driver:
    """Lives in the driver process; runs the check function there."""

    def find(self, factory: EngineFactory) -> str:
        """Why the engine class cannot be had; empty when it can."""
        try:
            factory.prepare_process()
            found = factory.engine_class()
        except Exception as error:  # noqa: BLE001 - importing foreign code raises anything
            return f"{factory.target}: {type(error).__name__}: {error}"
        return "" if isinstance(found, type) else f"{factory.target} is not a class"

    async def run(self, module: str, function: str, factory: EngineFactory) -> tuple[str, str]:
        """Run one check on a thread without an event loop; the kind of its end, and the reason."""
        return await asyncio.to_thread(self._run, module, function, factory)

    def _run(self, module: str, function: str, factory: EngineFactory) -> tuple[str, str]:
        try:
            factory.prepare_process()
            getattr(importlib.import_module(module), function)(factory)
        except CheckSkipped as reason:
            return Status.SKIPPED.value, str(reason)
        except AssertionError as error:
            return Status.FAILED.value, str(error) or "".join(traceback.format_exc())
        except Exception:  # noqa: BLE001 - whatever a foreign engine raises is a result
            last = traceback.format_exc().strip().splitlines()
            return Status.FAILED.value, "\n".join([last[-1], *last])
        return Status.PASSED.value, ""


class Runner:
    """Owns the nursery for one engine; use as a context manager.

    Args:
        factory: Which engine.

    Raises:
        EngineNotFoundError: The engine class cannot be imported.
    """

    def __init__(self, factory: EngineFactory) -> None:
        self.factory = factory
        preload = ["torch", "actor_wg_engine.conformance.session"]
        if factory.device == "cpu":
            preload += ["actor_wg_engine.manager", factory.module]
        self._nursery = nursery.Nursery(preload)
        reason = self.find(factory)
        if reason:
            self._nursery.close()
            raise EngineNotFoundError(reason)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process."""
        self._nursery.close()

    def find(self, factory: EngineFactory) -> str:
        """Why an engine cannot be had in a fresh process; empty when it can."""
        driver = WorkerHandle(self._nursery.address, "driver", _DRIVER)
        try:
            return str(driver.call("find", factory, timeout=120))
        except (DeadlineError, WorkerDiedError) as error:
            return f"{factory.target} cannot be imported: {error}\n{driver.log()[-2000:]}"
        finally:
            driver.close()

    def run(self, one: Check, factory: EngineFactory | None = None) -> CheckResult:
        """Run one check.

        Args:
            one: The check.
            factory: Another engine than the runner's; its module need not be preloaded.
        """
        factory = factory or self.factory
        started = time.monotonic()
        driver = WorkerHandle(self._nursery.address, f"driver of {one.id}", _DRIVER)
        try:
            kind, reason = driver.call(
                "run",
                one.function.__module__,
                one.function.__name__,
                factory,
                timeout=one.deadline,
            )
        except DeadlineError:
            kind, reason = "failed", f"not finished after {one.deadline:.0f} s; ended by force"
        except WorkerDiedError:
            kind, reason = (
                "failed",
                f"the driver process died; its log ends with:\n{driver.log()[-2000:]}",
            )
        finally:
            driver.close()
        status = Status(kind)
        if status is Status.FAILED and one.advisory and not factory.is_own:
            status = Status.ADVISORY
        return CheckResult(one.id, one.title, status, reason, time.monotonic() - started)
