"""Checkpoints of the run on display: save one, start a new run from one with other settings, or replay the run."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import panel as pn

from dtdg_lab.cluster.fork import fork
from dtdg_lab.cluster.replay import ReplayVerification, start_replay, store_verification
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.units import join_words
from dtdg_lab.dashboard.actions import Actions
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.runs.checkpoints import StoredCheckpoint, stored_checkpoints
from dtdg_lab.widgets.controls import folded, tipped
from dtdg_lab.widgets.run_page import ACTIVE, Page

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run
    from dtdg_lab.cluster.session import Session


TITLE = "Checkpoints, forks, replays"
NONE = "None yet. One is saved at the end of a run, and with <i>Keep every</i> after every so many epochs."
_ROW = {"sizing_mode": "stretch_width", "margin": (3, 8)}
_WORDS = {"margin": (0, 8, 4, 9), "width": 262, "styles": {"font-size": "12px", "overflow-wrap": "anywhere"}}


class Branch(Page):
    """Actions on the checkpoints of the run on display, folded below the settings.

    Args:
        settings: the dashboard's settings, which a fork takes.
        session: the session whose engines train forks and replays.
        actions: makes requests.
        clear: removes an old message before a new request.
    """

    def __init__(self, settings: Settings, session: Session, actions: Actions, clear: Callable[[], None]) -> None:
        super().__init__()
        self._settings, self._session, self._actions, self._clear = settings, session, actions, clear
        self._run: Run | None = None
        self._replayed: Run | None = None
        self._kept: dict[str, StoredCheckpoint] = {}
        self._files: tuple[Any, ...] = ()
        self._reader = self.in_background(self._read, "dashboard-checkpoints")
        tips = [
            "Save a checkpoint of the run before its next step, in addition to the last one.",
            "Checkpoint that a fork starts from.",
            "Start a run from this checkpoint with the settings of this page.",
            "Train the run again with the same settings and changes, and compare the losses at its end.",
        ]
        self.keep = self._button(
            "Keep a checkpoint", tips[0], lambda run: actions.do("Save a checkpoint", run.save_checkpoint)
        )
        self.at = pn.widgets.Select(label="Checkpoint", options={}, stylesheets=[tipped(tips[1])], **_ROW)
        self.at.param.watch(lambda event: actions.later(self._show_changes), "value")
        self.fork = self._button("Fork from it with these settings", tips[2], self._fork)
        self.replay = self._button("Replay this run", tips[3], self._replay)
        self.changes, self.found = (pn.widgets.StaticText(value="", **_WORDS) for _ in range(2))
        self.panel = folded(TITLE, self.keep, self.at, self.changes, self.fork, self.replay, self.found)
        settings.watch(self._show_changes)
        self.enable("idle", free=False)

    def _button(self, label: str, tip: str, ask: Callable[[Run], None]) -> pn.widgets.Button:
        button = pn.widgets.Button(label=label, stylesheets=[tipped(tip)], **_ROW)
        button.on_click(lambda event: self._actions.later(partial(self._clicked, ask)))
        return button

    def _clicked(self, ask: Callable[[Run], None]) -> None:
        if self._run is not None:
            self._clear()
            ask(self._run)

    # a person's actions

    def _fork(self, run: Run) -> None:
        checkpoint = self._chosen
        if checkpoint is not None:
            self._actions.do(
                "Fork", lambda: fork(run.path, checkpoint.name, session=self._session, **self._changed(checkpoint))
            )

    def _replay(self, run: Run) -> None:
        def begun(replay: Run) -> None:
            self._replayed = replay
            self.found.value = html.escape(f"{replay.id} replays {run.id}. The two are compared at its end.")

        self._actions.do("Replay", lambda: start_replay(run.path, session=self._session), then=begun)

    @property
    def _chosen(self) -> StoredCheckpoint | None:
        return self._kept.get(self.at.value)

    def _changed(self, checkpoint: StoredCheckpoint) -> dict[str, Any]:
        """Return the settings of the controls that differ from those of a checkpoint.

        Raises:
            ConfigError: the settings are incompatible.
        """
        settings, checkpoint_settings = (
            self._settings.config().flat,
            checkpoint.config.replace(**checkpoint.waiting).flat,
        )
        return {name: value for name, value in settings.items() if checkpoint_settings.get(name) != value}

    # display

    def follow(self, run: Run | None) -> None:
        """Show another run's checkpoints."""
        self._run, self._files = run, ()
        self._show((), ())

    def enable(self, state: str, *, free: bool) -> None:
        """Enable the actions that are possible; ``free`` says whether engines are idle."""
        active = state in ACTIVE
        self.keep.disabled = state not in ("running", "paused")
        self.fork.disabled = active or not free or self._chosen is None
        self.replay.disabled = active or not free or self._run is None

    def update(self, runs: Sequence[Run] = (), *, slow: bool) -> None:
        """Once per second, look for new checkpoints if they are shown, and for the end of a replay."""
        if not slow:
            return
        if self._run is not None and not self.panel.collapsed:
            self._reader.ask(self._run.path)
        replayed = self._replayed
        if replayed is not None and replayed.status not in ACTIVE:
            self._replayed = None
            self._actions.do("Compare the replay", lambda: store_verification(replayed.path), then=self._show_result)

    def _show_result(self, verification: ReplayVerification) -> None:
        self.found.value = html.escape(verification.caption[:1].upper() + verification.caption[1:])

    def _read(self, path: Path) -> None:
        try:
            files = tuple(sorted((file.name, file.stat().st_mtime_ns) for file in (path / "checkpoints").glob("*.pt")))
        except OSError:  # a file was just removed; the next call is in a second
            return
        if files != self._files:
            checkpoints = stored_checkpoints(path / "checkpoints")
            self._actions.later(lambda: self._show_of(path, checkpoints, files))

    def _show_of(self, path: Path, checkpoints: tuple[StoredCheckpoint, ...], files: tuple[Any, ...]) -> None:
        if self._run is not None and self._run.path == path:
            self._show(checkpoints, files)

    def _show(self, checkpoints: tuple[StoredCheckpoint, ...], files: tuple[Any, ...]) -> None:
        self._files, self._kept = files, {checkpoint.name: checkpoint for checkpoint in reversed(checkpoints)}
        options = {_label(checkpoint): name for name, checkpoint in self._kept.items()}
        value = self.at.value if self.at.value in self._kept else next(iter(self._kept), None)
        self.at.param.update(options=options, value=value)
        self._show_changes()

    def _show_changes(self) -> None:
        checkpoint = self._chosen
        if checkpoint is None:
            self.changes.value = NONE if self._run is not None else ""
            return
        try:
            self.changes.value = html.escape(self._words(checkpoint))
        except LabError as error:  # the Run button has the same error
            self.changes.value = html.escape(str(error))

    def _words(self, checkpoint: StoredCheckpoint) -> str:
        differences = join_words([f"{name}={value!r}" for name, value in self._changed(checkpoint).items()])
        if checkpoint.epoch >= self._settings.config().epochs:
            return f"All {checkpoint.epoch} epochs are trained, so a fork from here needs more epochs."
        return f"From there on, a fork differs by {differences}." if differences else "A fork repeats this run."


def _label(checkpoint: StoredCheckpoint) -> str:
    position = f", in epoch {checkpoint.epoch}" if checkpoint.iteration else f", after {checkpoint.epoch} epochs"
    return f"{checkpoint.name}: step {checkpoint.step}{position}"
