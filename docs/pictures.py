"""Takes the pictures of the real dashboard: the film `live-lab.webp`, and six of its pages for the gallery.

`python docs/pictures.py` needs Chromium and takes some minutes. In the film one rank is slowed, the others wait (grey),
and alpha is moved. Nothing is edited: pictures are what the page shows.
"""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PIL import Image

import dtdg_lab as lab

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FILE = Path(__file__).parent / "live-lab.webp"
SIZE = {"width": 1280, "height": 860}
FRAME_S, LIMIT_BYTES = 0.4, 3_000_000
STORY = {  # second -> change of the run
    4.0: {"slow_rank": 1, "slow_ms": 120.0},
    11.0: {"slow_rank": -1, "slow_ms": 0.0},
    14.0: {"alpha": 0.5},
}
END_S = 20.0
# file -> tab, what is chosen on it, width, colours, what the picture shows; the gallery shows them in this order
PAGES: Mapping[str, tuple[str, str, int, Literal["light", "dark"], str]] = {
    "live": ("Live", "", 1400, "light", "Live: settings, the log of changes, tiles, and the picture of FlareDTDG."),
    "windows": ("Live", "own", 1100, "light", "Live, further down and at 1100 pixels: more charts of FlareDTDG."),
    "data": ("Data", "", 1400, "light", "Data: the graph's edges over time, degrees and splits."),
    "partition": ("Partition", "", 1400, "dark", "Partition, in dark colours: parts, cut edges and loads."),
    "compare": ("Compare", "", 1400, "light", "Compare: the last runs, and stored ones, on one screen."),
    "papers": ("Papers", "", 1400, "dark", "Papers, in dark colours: a system's idea, equations and figures."),
}
HEIGHT = 900


def frames(page: Page, run: lab.runs.Run) -> list[tuple[float, Image.Image]]:
    """Screenshots with their times, while the run's settings change as in the story."""
    story, taken, began = dict(STORY), [], time.monotonic()
    while (now := time.monotonic() - began) < END_S:
        for second in [second for second in story if second <= now]:
            run.set(**story.pop(second))
        image = Image.open(io.BytesIO(page.screenshot(type="jpeg", quality=90)))
        taken.append((now, image.resize((SIZE["width"] * 3 // 4, SIZE["height"] * 3 // 4), Image.Resampling.LANCZOS)))
        time.sleep(max(0.0, FRAME_S - (time.monotonic() - began - now)))
    return taken


def take_pages(browser: Browser, address: str) -> None:
    """Write a picture of each page."""
    for name, (tab, chosen, width, colours, _) in PAGES.items():
        page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=colours)
        page.goto(address)
        page.get_by_text("Running", exact=True).first.wait_for(timeout=120_000)
        time.sleep(6)
        page.get_by_role("tab", name=tab).click()
        time.sleep(8)
        if chosen == "own":
            page.mouse.move(width / 2, HEIGHT / 2)
            page.mouse.wheel(0, HEIGHT)
            time.sleep(4)
        image = Image.open(io.BytesIO(page.screenshot()))
        image.save(FILE.parent / "assets" / f"page-{name}.webp", quality=70, method=6)
        page.close()


def main() -> None:
    """Train, look, and write the pictures."""
    from playwright.sync_api import sync_playwright

    from dtdg_lab.dashboard import serve

    config = lab.RunConfig(
        system="flaredtdg", dataset="growing", churn=0.9, model="tgcn", ranks=4, epochs=5_000, threads=1
    )
    with lab.Session(ranks=4) as session, sync_playwright() as started:
        for system in ("psg", "dygnex-l"):
            session.train(config.replace(system=system, epochs=40)).wait(300)
        run = session.train(config)
        server = serve(session)
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(server.url)
        page.get_by_text("Running", exact=True).first.wait_for(timeout=120_000)
        time.sleep(8)
        taken = frames(page, run)
        page.close()
        take_pages(browser, server.url)
        browser.close()
        server.stop()
        run.stop()
        run.wait(60)
    ends = [time_s for time_s, _ in taken[1:]] + [END_S]
    durations = [round(1000 * (end - start)) for (start, _), end in zip(taken, ends, strict=True)]
    images = [image for _, image in taken]
    images[0].save(
        FILE,
        save_all=True,
        append_images=images[1:],
        duration=durations,
        loop=0,
        quality=55,
        method=4,
        minimize_size=True,
    )
    size = FILE.stat().st_size
    if size > LIMIT_BYTES:
        raise SystemExit(f"{FILE} has {size:,} bytes, more than {LIMIT_BYTES:,}: record fewer frames or smaller ones.")
    print(f"{FILE}: {len(images)} frames, {size:,} bytes")


if __name__ == "__main__":
    main()
