"""Records docs/live-lab.webp from the real dashboard: one rank is slowed, the others wait (grey), alpha is moved.

`python docs/moving_picture.py` needs Chromium and takes a minute. The frames are what the page shows.
"""

from __future__ import annotations

import io
import shutil
import socket
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import dtdg_lab as lab
from dtdg_lab.dashboard import serve

FILE = Path(__file__).parent / "live-lab.webp"
SIZE = {"width": 1280, "height": 860}
FRAME_S, LIMIT_BYTES = 0.4, 3_000_000
STORY = {  # second -> change of the run
    4.0: {"slow_rank": 1, "slow_ms": 120.0},
    11.0: {"slow_rank": -1, "slow_ms": 0.0},
    14.0: {"alpha": 0.5},
}
END_S = 20.0


def frames(page: Page, run: lab.runs.Run) -> list[tuple[float, Image.Image]]:
    """Screenshots with their times, while the story is told to the run."""
    story, taken, began = dict(STORY), [], time.monotonic()
    while (now := time.monotonic() - began) < END_S:
        for second in [second for second in story if second <= now]:
            run.set(**story.pop(second))
        image = Image.open(io.BytesIO(page.screenshot(type="jpeg", quality=90)))
        taken.append((now, image.resize((SIZE["width"] * 3 // 4, SIZE["height"] * 3 // 4), Image.Resampling.LANCZOS)))
        time.sleep(max(0.0, FRAME_S - (time.monotonic() - began - now)))
    return taken


def main() -> None:
    """Train, look, and write the picture."""
    config = lab.RunConfig(
        system="flaredtdg", dataset=lab.datasets.default(), model="tgcn", ranks=4, epochs=100_000, threads=1
    )
    with lab.Session(ranks=4) as session, sync_playwright() as started:
        run = session.train(config)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = serve(session, port=port, threaded=True)
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(f"http://127.0.0.1:{port}")
        page.get_by_text("running").first.wait_for(timeout=120_000)
        time.sleep(8)
        taken = frames(page, run)
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
