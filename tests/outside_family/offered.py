"""Where registrations of every kind are offered; prints what was seen."""

from __future__ import annotations

import json
from typing import Any

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.base import SystemFamily
from outside_family.all_kinds import RUNS, SMALL, config_of, register_all


class Bare(SystemFamily):
    """A family that adds nothing: no system, no workload."""

    name = "bare"


def main() -> dict[str, Any]:
    """Return what each part of the lab offers."""
    from pretend_session import PretendSession

    from dtdg_lab.dashboard.app import Dashboard
    from dtdg_lab.dashboard.pages.partition import _settings

    register_all()
    lab.register(Bare())
    seen: dict[str, Any] = {
        "described": {name: lab.describe(name) for name in RUNS},
        "configs": {name: config_of(name).to_json() for name in RUNS},
        "options": {system: str(lab.options(system)) for system in ("psg", "adgnn-t", "greendygnn", "dynahb")},
        "data sets": {info.name: info.tasks for info in lab.datasets.list()},
    }
    rows = lab.options("adgnn-t", task="huber", partitioner="ribbons").rows
    seen["own options"] = sorted({row["name"] for row in rows} & {"huber_delta", "ribbon_offset"})
    seen["read by"] = [lab.describe(name).splitlines()[-1].strip() for name in seen["own options"]]
    seen["partitions"] = [measured.partitioner for measured in lab.partition.compare(graph())]
    advice = lab.estimate.forecast(
        lab.RunConfig(dataset=graph()), 2, {"task": "huber", "scheduler": "latest_first"}, runs_dir=None
    ).advice(4.0)
    seen["advised"] = [suggestion.config.system for suggestion in advice.suggestions]
    seen["left out"] = dict(advice.excluded)
    try:
        lab.estimate.forecast(lab.RunConfig(dataset=graph()), 2, systems=("striped",), runs_dir=None).advice(4.0)
    except ConfigError as error:
        seen["advised alone"] = str(error)
    config = lab.RunConfig(dataset=graph(), scheduler="latest_first", task="huber")
    forecast = lab.estimate.forecast(config, (1, 2), runs_dir=None).curves()
    seen["forecast"] = len(forecast.rows)
    dashboard = Dashboard(PretendSession(2), config_of("latest_first", 2))
    controls = dashboard.settings.controls
    names = ("model", "task", "scheduler", "partitioner", "dataset", "congestion", "cache_policy", "batch_policy")
    seen["controls"] = {name: list(controls[name].widget.values) for name in names}
    seen["cards"] = [card["name"] for card in json.loads(dashboard.navigation.content)["cards"]]
    seen["config"] = dashboard.settings.config()["scheduler"]
    controls["task"].widget.value = "huber"
    dashboard.settings._refresh()
    seen["shown"] = [name for name in ("huber_delta", "link_share") if controls[name].widget.visible]
    dashboard.close()
    models = lab.RunConfig.model_fields["model"].default, "wdgcn", "smoothed"
    seen["page Partition"] = [_settings(lab.RunConfig(model=model, **SMALL))["model"] for model in models]
    return seen


def graph() -> lab.DynamicGraph:
    """Return the small graph of the runs."""
    return lab.datasets.load("growing", **{name: value for name, value in SMALL.items() if name.startswith("gen")})


if __name__ == "__main__":
    print(json.dumps(main(), default=str))
