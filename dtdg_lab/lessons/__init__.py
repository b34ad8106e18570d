"""What the notebooks use besides ``lab``: questions, checks of exercises, widgets, figures and selected functions."""

from optuna.pruners import MedianPruner

from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.core.plans import BatchSize, Partition, Schedule, SnapshotBlocks
from dtdg_lab.core.rng import generator
from dtdg_lab.graphs.delta import decode, encode
from dtdg_lab.lessons import checks, exercises
from dtdg_lab.lessons.checks import Estimate, Prediction, points, predicted
from dtdg_lab.lessons.experiments import change, exactness, pruned_epochs, rows_read
from dtdg_lab.lessons.figures import bar_chart, forecast_panels, panels, side_by_side
from dtdg_lab.lessons.race_screen import RaceScreen
from dtdg_lab.lessons.seeds import near_by_seed_words
from dtdg_lab.lessons.widgets import BatchBench, CacheBench, ScheduleBench
from dtdg_lab.network.links import parse_links
from dtdg_lab.network.patterns import make_pattern
from dtdg_lab.partition.redistribution_volume import collective_rows, collectives
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.runs.liveness import read_notes
from dtdg_lab.studies.race_table import MEASURES
from dtdg_lab.studies.study import importance_of
from dtdg_lab.systems.decayed_windows.chunks import Chunking
from dtdg_lab.systems.decayed_windows.shrinking import Shrinker, survival_order
from dtdg_lab.systems.decayed_windows.window import decayed_counts, kept_share
from dtdg_lab.systems.feature_cache.actions import WINDOWS, CacheActions
from dtdg_lab.systems.feature_cache.calibration.calibration import SHIPPED, reddit
from dtdg_lab.systems.feature_cache.calibration.study import measure as measure_calls
from dtdg_lab.systems.feature_cache.policies.baselines import RuleWindows
from dtdg_lab.systems.feature_cache.policies.learned import learned_policy
from dtdg_lab.systems.feature_cache.policies.planner import CachePlanner
from dtdg_lab.systems.feature_cache.simulation.cases import CacheCase, comparison_cases
from dtdg_lab.systems.feature_cache.simulation.comparison import compare as compare_policies
from dtdg_lab.systems.feature_cache.simulation.episode import draw_episode
from dtdg_lab.systems.hybrid_batches.sampler import LoadGroups, TargetSampler, load_groups
from dtdg_lab.systems.hybrid_batches.simulator import LANDSCAPES, BatchSimulator, over_best_fixed
from dtdg_lab.systems.snapshot_groups.comparison import predict_epochs
from dtdg_lab.systems.snapshot_groups.gantt import planned_figure
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import replay

__all__ = [
    "LANDSCAPES",
    "MEASURES",
    "SHIPPED",
    "WINDOWS",
    "BatchBench",
    "BatchSimulator",
    "BatchSize",
    "CacheActions",
    "CacheBench",
    "CacheCase",
    "CachePlanner",
    "Chunking",
    "ConfigError",
    "Estimate",
    "LoadGroups",
    "MedianPruner",
    "Partition",
    "Prediction",
    "RaceScreen",
    "RuleWindows",
    "RunFailedError",
    "Schedule",
    "ScheduleBench",
    "Shrinker",
    "SnapshotBlocks",
    "TargetSampler",
    "bar_chart",
    "change",
    "checks",
    "collective_rows",
    "collectives",
    "compare_policies",
    "comparison_cases",
    "decayed_counts",
    "decode",
    "draw_episode",
    "encode",
    "exactness",
    "exercises",
    "forecast_panels",
    "generator",
    "importance_of",
    "kept_share",
    "learned_policy",
    "load_groups",
    "make_pattern",
    "measure_calls",
    "near_by_seed_words",
    "over_best_fixed",
    "panels",
    "parse_links",
    "planned_figure",
    "points",
    "predict_epochs",
    "predicted",
    "pruned_epochs",
    "read_notes",
    "reddit",
    "replay",
    "rows_read",
    "side_by_side",
    "survival_order",
    "vertex_loads",
]
