"""The view of one simulated run, out of those of many."""

from dtdg_lab.systems.feature_cache.policies.interface import CacheView, CacheViews


def view_of(views: CacheViews, index: int) -> CacheView:
    """What a live policy would see of the run at an index, without a forecast."""
    given = (views.steps, views.steps_left, views.previous)
    now = {"now": int(views.now[index]), "changes": int(views.changes[index])}
    return CacheView(views.states[index], views.delays_s[index], *(int(each[index]) for each in given), **now)
