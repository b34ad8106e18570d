"""The runs of a race, one after another or two in parallel on halves of the engines, with their records."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.local import Evaluated, Verdict, run_config
from dtdg_lab.cluster.worker import rehearse
from dtdg_lab.core.errors import ControlError, LabError, RunFailedError
from dtdg_lab.runs.directory import ENDED
from dtdg_lab.studies.race_result import Race
from dtdg_lab.studies.race_store import FAILED, FINISHED, LEFT, Plan, RaceEntry, RaceStore

if TYPE_CHECKING:
    from dtdg_lab.cluster.session import Session


LOOK_S, PATIENCE_S = 0.2, 30.0


class RaceRunner:
    """Trains the missing runs of a race; ``stop`` may be called from another thread.

    Args:
        store: of the race, held by this process.
        session: whose engines train; this process where None.
        runs_dir: folder of runs, without a session.
        on_change: called with the race after every validation evaluation, and when a run starts or ends; by the thread
            that trains or waits, one call at a time.
        progress: show a progress bar of runs.

    Attributes:
        race: in its current state.
    """

    def __init__(
        self,
        store: RaceStore,
        *,
        session: Session | None,
        runs_dir: Path,
        on_change: Callable[[Race], None] | None = None,
        progress: bool = False,
    ) -> None:
        self.race = Race(store)
        self._store, self._session, self._runs_dir = store, session, runs_dir
        self._on_change, self._progress = on_change, progress
        self._callback_lock = threading.RLock()
        self._storing = threading.RLock()
        self._stopping = threading.Event()
        self._asked_to_stop = False
        self._handles: dict[threading.Thread, tuple[str, Any]] = {}
        self._errors: list[BaseException] = []
        self._of_watching: BaseException | None = None
        self._bar: Any = None

    def run(self) -> Race:
        """Train every run that is not finished yet, in the order of :func:`order_of`.

        A run that fails is recorded with its reason, and the race continues.

        Raises:
            RunFailedError: a run was stopped, and the race with it; finished runs are kept.
            LabError: a run cannot be started, or the race cannot be written.
        """
        from tqdm.auto import tqdm

        plan = self._store.plan
        places = order_of(plan)
        waiting = deque(place for place in places if self._store.done(*place) is None)
        try:
            with tqdm(
                total=len(places), initial=len(places) - len(waiting), unit="run", disable=not self._progress
            ) as self._bar:
                self._report()
                if waiting and self._session is None:
                    rehearse()  # warm-up of libraries must not count as the first contestant's time
                if plan.parallel and self._session is not None:
                    self._on_halves(waiting, self._session.halves())
                else:
                    self._one_after_another(waiting, None)
        finally:
            self._store.release()
        if self._errors:
            raise self._errors[0]
        return self.race

    @property
    def stopped(self) -> bool:
        """Whether a stop was requested."""
        return self._asked_to_stop

    def stop(self) -> None:
        """Stop the active runs and start no more; in this process at the next evaluation of the validation split."""
        self._asked_to_stop = True
        self._stopping.set()
        for _, handle in list(self._handles.values()):
            _end(handle)

    def _on_halves(self, waiting: deque[tuple[str, int]], halves: tuple[tuple[int, ...], ...]) -> None:
        threads = [
            threading.Thread(target=self._guarded, args=(waiting, half), name=f"race-{half[0]}", daemon=True)
            for half in halves
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(LOOK_S)
        except KeyboardInterrupt:  # an interrupted race stops its runs
            self.stop()
            for thread in threads:  # they record how their runs ended, and own the race until then
                thread.join(PATIENCE_S)
            raise

    def _guarded(self, waiting: deque[tuple[str, int]], half: tuple[int, ...]) -> None:
        try:
            self._one_after_another(waiting, half)
        except BaseException as error:  # re-raised by ``run``, in the thread that started the race
            self._errors.append(error)
            self._stopping.set()

    def _one_after_another(self, waiting: deque[tuple[str, int]], half: tuple[int, ...] | None) -> None:
        while not self._stopping.is_set():
            try:
                label, seed = waiting.popleft()
            except IndexError:
                return
            if half is None and self._session is not None and not self._session.ready:
                self._session.repair()  # an engine died with the run before
            self._make(label, seed, half)
            self._bar.update()
            self._report()

    def _make(self, label: str, seed: int, half: tuple[int, ...] | None) -> None:
        """One run, from start to end."""
        config = self._store.plan.configs[label].replace(seed=seed)
        me, place = threading.current_thread(), -1

        def begun(handle: Any) -> None:
            nonlocal place
            with self._storing:
                beside = ", ".join(other for other, _ in self._handles.values())
                self._handles[me] = label, handle
                place = self._store.begin(RaceEntry(label, seed, Path(handle.path), beside=beside))
                self.race.show(label, seed, handle)
            if self._asked_to_stop:  # during its start
                _end(handle)
            self._report()

        engines = None if half is None else half[: config.ranks]
        try:
            done = run_config(
                config,
                session=self._session,
                engines=engines,
                runs_dir=self._runs_dir,
                judge=self._judge,
                on_start=begun,
            )
        except LabError as error:
            if place < 0 or error is self._of_watching:
                self._leave(place)  # it could not be started, nor could the next; or it cannot be watched
                raise
            self._note(place, FAILED, str(error))
            return
        except BaseException:
            self._leave(place)
            raise
        finally:
            self._handles.pop(me, None)
        if done.run.status == "finished":
            self._note(place, FINISHED, "" if done.verdict is None else done.verdict.why)
            return
        self._note(place, LEFT, f"it was {done.run.status}")
        raise RunFailedError(
            f"run {done.run.id} was {done.run.status}, and the race with it. What has finished is kept in "
            f"{self._store.folder}: call race again with name={self._store.plan.name!r} to resume."
        )

    def _leave(self, place: int) -> None:
        """The race is interrupted for a reason outside the run."""
        _end(self._handles.get(threading.current_thread(), ("", None))[1])
        if place >= 0:
            self._note(place, LEFT, "the race was interrupted")

    def _note(self, place: int, state: str, why: str) -> None:
        with self._storing:
            self._store.end(place, state, why)

    def _judge(self, seen: tuple[Evaluated, ...]) -> Verdict | None:
        self._report()
        if self._asked_to_stop and self._session is None:
            return Verdict("stop", "the race was stopped")
        stop = self._store.plan.stop
        return None if stop is None else stop.verdict(seen)

    def _report(self) -> None:
        if self._on_change is None:
            return
        with self._callback_lock:
            try:
                self._on_change(self.race)
            except BaseException as error:  # not caused by a run
                self._of_watching = error
                raise


def _end(handle: Any) -> None:
    """Stop a run on engines, unless it is ending already."""
    if not hasattr(handle, "stop") or handle.status in (*ENDED, "stopping"):
        return
    try:
        handle.stop()
    except ControlError:
        if handle.status not in (*ENDED, "stopping"):
            raise


def order_of(plan: Plan) -> list[tuple[str, int]]:
    """Contestant and seed of every run: seed by seed, with a rotating first contestant.

    The first one may find cold file caches, a cold processor, or uncached partitions.
    """
    labels = list(plan.configs)
    turns = [(place % len(labels), seed) for place, seed in enumerate(plan.seeds)]
    return [(label, seed) for turn, seed in turns for label in (*labels[turn:], *labels[:turn])]
