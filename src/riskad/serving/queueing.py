"""One thread that scores, off the event loop, with a bounded queue.

Small requests that wait together are answered together, since a detector takes little longer for
ten rows than for one. A large request is processed in parts, with newly arrived small ones in
between: a client with one row never waits for one with ten thousand.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from riskad.serving.models import ServedModel

__all__ = ["SMALL_BYTES", "Answer", "Job", "ScoringThread"]

SMALL_BYTES = 32_768
"""Size up to which a request is small."""
_MOST_TOGETHER = 32


@dataclass(frozen=True)
class Answer:
    """Status and body of an answer."""

    status: int
    body: bytes


@dataclass(frozen=True, eq=False)
class Job:
    """A request for scores, and the model in use when it arrived."""

    model: ServedModel
    body: bytes
    reasons: int = 0
    p_values: bool = False

    @property
    def small(self) -> bool:
        """Whether it is worth answering together with others."""
        return len(self.body) <= SMALL_BYTES and not self.reasons


class ScoringThread:
    """Answers jobs in its own thread.

    Parameters
    ----------
    answer_small
        Answers small jobs, which all have the same model, together.
    answer_large
        Answers any job in steps: yields None after each but the last.
    most_waiting
        Most jobs that may wait.
    """

    def __init__(
        self,
        answer_small: Callable[[Sequence[Job]], Sequence[Answer]],
        answer_large: Callable[[Job], Iterator[Answer | None]],
        most_waiting: int,
    ):
        self._answer_small, self._answer_large = answer_small, answer_large
        self._most = most_waiting
        self._small: deque[tuple[Job, asyncio.Future[Answer]]] = deque()
        self._large: deque[tuple[Job, asyncio.Future[Answer]]] = deque()
        self._calls: deque[tuple[Callable[[], Any], threading.Event, list[Any]]] = deque()
        self._news = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._work, name="riskad-score", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of waiting jobs."""
        return len(self._small) + len(self._large)

    @property
    def full(self) -> bool:
        """Whether no further job may wait."""
        return self.waiting >= self._most

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> asyncio.Future[Answer]:
        """Queue a job; called from an event loop."""
        future = asyncio.get_running_loop().create_future()
        with self._news:
            (self._small if job.small else self._large).append((job, future))
            self._news.notify()
        return future

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the thread, between jobs, and wait for it; its errors are raised."""
        done, failed = threading.Event(), []  # type: ignore[var-annotated]
        with self._news:
            self._calls.append((function, done, failed))
            self._news.notify()
        done.wait()
        if failed:
            raise failed[0]

    def close(self) -> None:
        """End when the current step is done."""
        with self._news:
            self._ending = True
            self._news.notify()
        self._thread.join()

    # --- in the thread -------------------------------------------------------------------

    def _work(self) -> None:
        under_way: tuple[asyncio.Future[Answer], Iterator[Answer | None]] | None = None
        while True:
            with self._news:
                while not (self._small or self._large or self._calls or under_way or self._ending):
                    self._news.wait()
                if self._ending:
                    return
                together = self._take_small()
                calls = [self._calls.popleft() for _ in range(len(self._calls))]
                if under_way is None and self._large:
                    job, future = self._large.popleft()
                    under_way = future, self._answer_large(job)
            for function, done, failed in calls:
                _call(function, done, failed)
            if together:
                self._answer_together(together)
            if under_way is not None and _step(*under_way):
                under_way = None

    def _take_small(self) -> list[tuple[Job, asyncio.Future[Answer]]]:
        """The waiting small jobs that have one model, up to a limit."""
        taken: list[tuple[Job, asyncio.Future[Answer]]] = []
        while self._small and len(taken) < _MOST_TOGETHER:
            if taken and self._small[0][0].model is not taken[0][0].model:
                break
            taken.append(self._small.popleft())
        return taken

    def _answer_together(self, taken: Sequence[tuple[Job, asyncio.Future[Answer]]]) -> None:
        try:
            answers = self._answer_small([job for job, _ in taken])
        except Exception as error:
            for _, future in taken:
                _tell(future, error)
            return
        for (_, future), answer in zip(taken, answers, strict=True):
            _tell(future, answer)


def _call(function: Callable[[], object], done: threading.Event, failed: list[Any]) -> None:
    try:
        function()
    except Exception as error:
        failed.append(error)
    finally:
        done.set()


def _step(future: asyncio.Future[Answer], steps: Iterator[Answer | None]) -> bool:
    """Work on a large job for a while; returns whether it is done."""
    if future.cancelled():  # the client has disconnected
        return True
    try:
        answer = next(steps)
    except Exception as error:
        _tell(future, error)
        return True
    if answer is None:
        return False
    _tell(future, answer)
    return True


def _tell(future: asyncio.Future[Answer], result: Answer | Exception) -> None:
    """Give a result to the event loop that waits for it."""

    def tell() -> None:
        if future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    loop = future.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell)
