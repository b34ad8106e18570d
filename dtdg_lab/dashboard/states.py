"""The content of the page's head in each state of a run, computed from facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dtdg_lab.visualization.numbers import clock_text, percent_text, three_digits
from dtdg_lab.widgets.header import Button, Head, Notice, Tone, Words
from dtdg_lab.widgets.run_page import ACTIVE

INVITATION = "Choose a system, press Run, then change a setting while it trains."
PAUSE = Button("pause", "Pause", "", "Pauses all ranks after the same step.")
CONTINUE = Button("pause", "Continue", "act", "Continues with the next step of all ranks.")
STOP = Button("stop", "Stop", "halt", "Ends the run after this step; you can resume it.")
CANCEL = Button("stop", "Cancel", "halt", "Ends the run before its first step.")
RESTART = Button("repair", "Restart engines", "", "Starts new engines in place of dead ones.")
STATES: Mapping[str, tuple[str, Tone]] = {  # status of a run -> word and colour of the state
    "starting": ("Preparing", "care"),
    "running": ("Running", "good"),
    "paused": ("Paused", "care"),
    "stopping": ("Stopping", "care"),
    "finished": ("Finished", "info"),
    "stopped": ("Stopped", ""),
    "failed": ("Failed", "bad"),
    "interrupted": ("Interrupted", "bad"),
}
RESUMABLE = ("stopped", "failed", "interrupted")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """Everything on which the head depends.

    Attributes:
        system: title of the chosen system.
        is_other: whether the run on display has another system.
        status: the run's status; empty without a run.
        name, sub: name of the run, and the text below it.
        engines, engines_ready: number of engines, and of those that answer.
        devices: devices of the engines, in words.
        ready: whether a run can be started.
        busy: whether a request is waiting for its result.
        preparing, left_words: what is done before the first step, and for how long.
        between_steps: what is done between two steps, if it takes long.
        step, epoch, epochs, seconds, seconds_left: progress of the run, as in ``records.position.Progress``.
        paused_s: for how long it has been paused.
        ended: time of day when it ended, or was last seen.
        test_loss, below: test loss after the end, and the share by which it is below persistence (negative if above).
        damaged: which of the run's records could not be read, in words.
        silent: rank -> seconds since it last reported.
        page_is_busy: whether this page draws its charts late.
        reason: why the run failed or was interrupted.
        checkpoint_step: step of the last checkpoint.
        left_behind: whether an earlier session left an interrupted run, and this one has no run.
        problem: what was last refused or failed, in words.
        newcomer: whether no run was started here yet.
    """

    system: str = ""
    is_other: bool = False
    status: str = ""
    name: str = ""
    sub: str = ""
    engines: int = 0
    engines_ready: int = 0
    devices: str = ""
    ready: bool = True
    busy: bool = False
    preparing: str = ""
    left_words: str = ""
    between_steps: str = ""
    step: int = 0
    epoch: int = 0
    epochs: int = 0
    seconds: float = 0.0
    seconds_left: float | None = None
    paused_s: float = 0.0
    ended: str = ""
    test_loss: float | None = None
    below: float | None = None
    damaged: str = ""
    silent: Mapping[int, int] = field(default_factory=dict)
    page_is_busy: bool = False
    reason: str = ""
    checkpoint_step: int | None = None
    left_behind: bool = False
    problem: str = ""
    newcomer: bool = False


def about_text(seconds: float) -> str:
    """Return a duration as people estimate it, such as ``about 40 s`` or ``about 2 min``."""
    if seconds < 55:
        return f"about {max(1, round(seconds))} s"
    if seconds < 5400:
        return f"about {max(1, round(seconds / 60))} min"
    return f"about {seconds / 3600:.1f} h"


def is_preparing(facts: PageFacts) -> bool:
    """Return whether the run has not made its first step yet."""
    return facts.status == "starting" or (facts.status == "running" and not facts.epoch)


def head_of(facts: PageFacts) -> Head:
    """Return the content of the head."""
    if not facts.status:
        return _idle(facts)
    state, tone = STATES["starting" if is_preparing(facts) else facts.status]
    share, left, right = _progress(facts)
    return Head(
        name=facts.name,
        sub=facts.sub,
        renamable=True,
        state=state,
        tone=tone,
        share=share,
        left=left,
        right=right,
        buttons=_buttons(facts),
        notice=_notice(facts),
        menu=_menu(facts),
    )


def _idle(facts: PageFacts) -> Head:
    engines = f"{facts.engines_ready} of {facts.engines} engines are ready" if facts.engines else ""
    devices = f" · {facts.devices}" if facts.devices else ""
    starting = f"Engines are starting: {facts.engines_ready} of {facts.engines} ready"
    return Head(
        name="No run yet",
        sub=engines + devices,
        renamable=False,
        state="No run yet",
        tone="",
        share=-1.0,
        left=((INVITATION if facts.ready else starting, False),),
        right="",
        buttons=_buttons(facts),
        notice=_notice(facts),
        menu=_menu(facts),
    )


# The bar and the texts below it


def _progress(facts: PageFacts) -> tuple[float | None, Words, str]:
    if is_preparing(facts):
        return None, ((facts.preparing or "Starting the ranks", False),), facts.left_words
    if facts.status == "finished":
        took = f", took {clock_text(facts.seconds)}"
        texts = ((f"{facts.epochs} epochs", True), (f" · {facts.step:,} steps", False))
        return 1.0, texts, f"finished {facts.ended}{took}" if facts.ended else f"took {clock_text(facts.seconds)}"
    return _share(facts), _position(facts), _when(facts)


def _share(facts: PageFacts) -> float:
    if facts.seconds_left is not None and facts.seconds + facts.seconds_left > 0:
        return facts.seconds / (facts.seconds + facts.seconds_left)
    return max(0, facts.epoch - 1) / max(1, facts.epochs)


def _position(facts: PageFacts) -> Words:
    prefixes = {"stopped": "Stopped in epoch ", "failed": "Failed in epoch ", "interrupted": "Interrupted in epoch "}
    begin = prefixes.get(facts.status, "Epoch ")
    position = f"{facts.epoch} of {facts.epochs}"
    work = f" · {facts.between_steps[:1].lower()}{facts.between_steps[1:]}" if facts.between_steps else ""
    words = ((begin, False), (position, True), (" · step ", False), (f"{facts.step:,}", True))
    return (*words, (work, False)) if work and facts.status in ACTIVE else words


def _when(facts: PageFacts) -> str:
    if facts.status == "paused":
        return f"paused for {clock_text(facts.paused_s)}"
    if facts.status == "stopped":
        return clock_text(facts.seconds)
    if facts.status == "failed":
        return f"at {facts.ended}" if facts.ended else ""
    if facts.status == "interrupted":
        return f"last seen at {facts.ended}" if facts.ended else ""
    if facts.silent or facts.seconds_left is None:
        return f"{clock_text(facts.seconds)} elapsed, time left unknown"
    return f"{clock_text(facts.seconds)} elapsed, {about_text(facts.seconds_left)} left"


# Buttons and menu


def _buttons(facts: PageFacts) -> tuple[Button, ...]:
    status = facts.status
    if status in ACTIVE:
        return _of_active(facts)
    label = {"finished": "▶ Run again"}.get(status, "▶ New run")
    run = _run(facts, label if status and not facts.is_other else f"▶ Run {facts.system}")
    return (_resume(facts), run) if status in RESUMABLE or facts.left_behind else (run,)


def _of_active(facts: PageFacts) -> tuple[Button, ...]:
    if is_preparing(facts):
        return (CANCEL,)
    if facts.status == "stopping":
        return (replace(STOP, disabled=True),)
    return (replace(CONTINUE if facts.status == "paused" else PAUSE, disabled=facts.busy), STOP)


def _run(facts: PageFacts, label: str) -> Button:
    is_free = facts.ready and facts.engines_ready == facts.engines and not facts.busy
    return Button("run", label, "go", "Starts a run with the settings on the left.", disabled=not is_free)


def _resume(facts: PageFacts) -> Button:
    suffix = (
        "" if facts.checkpoint_step is None or facts.status == "stopped" else f" from step {facts.checkpoint_step:,}"
    )
    is_possible = not facts.busy and facts.engines_ready == facts.engines
    tip = "Continues from the last checkpoint."
    return Button("resume", f"Resume{suffix}", "act", tip, disabled=not is_possible)


def _menu(facts: PageFacts) -> tuple[tuple[str, str], ...]:
    entries = []
    if facts.status:
        entries = [("Open report", "report"), ("Copy run id", "copy_id"), ("Copy folder", "copy_folder")]
    entries.append(("Show engines", "engines"))
    if facts.status not in ACTIVE:
        entries.append(("Restart engines", "repair"))
    return tuple(entries)


# The notice


def _notice(facts: PageFacts) -> Notice | None:
    """Return the most important notice, if there is any."""
    return _harm(facts) or _of_engines(facts) or _of_state(facts)


def _harm(facts: PageFacts) -> Notice | None:
    details = Button("details", "Show details", "link")
    if facts.problem:
        first, _, rest = facts.problem.partition(". ")
        return Notice("bad", _sentence(first), rest, (Button("dismiss", "Dismiss", "link"),))
    if facts.damaged:
        return Notice("bad", "Some records can't be read.", facts.damaged)
    if facts.status == "failed":
        first, _, rest = facts.reason.partition("\n")[0].partition(". ")
        return Notice("bad", _sentence(first), rest, (details,))
    if facts.status == "interrupted":
        first, rest = "The engines stopped answering.", "Their machine may have restarted."
        if facts.reason.startswith("interrupted by "):  # a signal, which schedulers send at the end of the time limit
            first, rest = _sentence(facts.reason.partition(":")[0]), ""
        saved = "" if facts.checkpoint_step is None else f"Nothing before step {facts.checkpoint_step:,} is lost."
        return Notice("bad", first, f"{rest} {saved}".strip(), (details, RESTART))
    return None


def _sentence(text: str) -> str:
    text = text.strip() or "The run failed"
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _of_engines(facts: PageFacts) -> Notice | None:
    missing = facts.engines - facts.engines_ready
    if facts.ready and missing > 0:
        are = "is" if missing == 1 else "are"
        return Notice(
            "bad",
            f"{missing} of {facts.engines} engines {are} missing.",
            "No run can start until all engines are ready.",
            (RESTART,),
        )
    return None


def _of_state(facts: PageFacts) -> Notice | None:
    notices = {
        "": _of_first_visit,
        "running": _of_running,
        "paused": lambda _: Notice("info", "Paused.", "Change settings now: they apply when you continue."),
        "finished": _of_end,
        "stopped": lambda _: Notice("info", "Stopped by you.", "The test loss is measured only when a run finishes."),
    }
    make = notices.get(facts.status)
    return None if make is None else make(facts)


def _of_running(facts: PageFacts) -> Notice | None:
    if facts.silent:
        rank, seconds = max(facts.silent.items(), key=lambda rank_and_seconds: rank_and_seconds[1])
        rest = "The other ranks are waiting for it." if facts.engines > 1 else ""
        return Notice("care", f"Rank {rank} has been silent for {seconds} s.", rest)
    if facts.page_is_busy:
        return Notice("care", "This page is busy,", "so charts are drawn every 2 s. Training isn't slowed down.")
    return None


def _of_first_visit(facts: PageFacts) -> Notice | None:
    if facts.left_behind:
        return Notice("care", "An earlier run was interrupted.", "It can be resumed from its last checkpoint.")
    if not facts.newcomer:
        return None
    rest = "Suggestions under the picture tell you what to change first."
    return Notice("info", "New here?", rest, (Button("tour", "Show me around"),))


def _of_end(facts: PageFacts) -> Notice:
    buttons = (Button("compare", "Compare", "link"), Button("report", "Open report", "link"))
    if facts.test_loss is None:
        return Notice("info", "The run is over.", "", buttons)
    first, rest = f"Test loss {three_digits(facts.test_loss)}", "It was measured once, at the end."
    if facts.below is None:
        return Notice("info", f"{first}.", rest, buttons)
    side = "below" if facts.below >= 0 else "above"
    return Notice("info", f"{first},", f"{percent_text(abs(facts.below))} {side} persistence. {rest}", buttons)
