"""What a step costs by its number of blocks: small numbers in, bars, crosses and a sentence out."""

from __future__ import annotations

from dtdg_lab.systems.snapshot_blocks.block_study import StepCost, cost_caption, draw_block_costs, least_memory_caption
from tests.drawing import checked_figure

COSTS = [StepCost(1, 4096, 0.01), StepCost(2, 2048, 0.02, 2000), StepCost(4, 3072, 0.04)]


def test_peaks_are_bars_times_a_line_and_predictions_crosses() -> None:
    figure = checked_figure(draw_block_costs([*COSTS, StepCost(8, None, 0.05)]))
    peak, time, predicted = figure["data"]
    assert peak["x"] == ["1", "2", "4"] and peak["y"] == [4.0, 2.0, 3.0], "8 blocks were not probed"
    assert time["y"] == [10.0, 20.0, 40.0] and predicted["x"] == ["2"]
    assert figure["layout"]["meta"]["card"]["unit"] == "KiB"


def test_captions_name_what_blocks_need() -> None:
    assert (
        least_memory_caption(COSTS) == "2 blocks need least memory, 50% of what 1 block holds, in 2.00 times the time."
    )
    assert least_memory_caption(COSTS[:1]) == "1 block needs least memory here: 4.00 KiB."
    assert cost_caption(COSTS[1]) == "2 blocks need 2.00 KiB and 20.0 ms per step."
    assert cost_caption(COSTS[0]) == "One block needs 4.00 KiB and 10.0 ms per step."
