"""Pictures with handles: a figure of a mechanism that follows its sliders at once and trains nothing."""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.lessons.checks import Shown
from dtdg_lab.visualization.chart import CaptionedFigure, Figure
from dtdg_lab.visualization.sheet import standalone

PLOTLY = "application/vnd.plotly.v1+json"


class Handles(Shown):
    """A picture below a slider for each argument of the function that draws it.

    Args:
        picture: handle -> value, as keywords, to a figure with its caption.
        handles: argument -> the values on its slider, in order; the slider begins at the default of the function, or
            at the first value where it has none of these.
        **given: the other arguments of the function.

    Attributes:
        figure: the picture as it is now.
        caption: its caption.

    Raises:
        ConfigError: there is no handle, or a handle has no values.
        UnknownNameError: a handle is not an argument of the function.
    """

    def __init__(
        self,
        picture: Callable[..., CaptionedFigure],
        handles: Mapping[str, Sequence[Any]],
        **given: Any,
    ) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        if not handles or not all(handles.values()):
            raise ConfigError(f"handles={dict(handles)!r} is invalid. Give each of one or more handles its values.")
        self._draw_picture, self._given = picture, given
        parameters = inspect.signature(picture).parameters
        for name in handles:
            if name not in parameters:
                raise UnknownNameError(f"argument of {picture.__name__}", name, parameters)
        self._sliders = {
            name: ipywidgets.SelectionSlider(
                options=[(str(value), value) for value in values],
                value=parameters[name].default if parameters[name].default in values else values[0],
                description=name,
                style={"description_width": "initial"},
                layout={"width": "70%"},
            )
            for name, values in handles.items()
        }
        self._described = ipywidgets.HTML()
        self._lay_out(*self._sliders.values(), self._described)
        self._follow()
        for slider in self._sliders.values():
            slider.observe(lambda _: self._follow(), names="value")

    def __repr__(self) -> str:
        return f"<Handles {', '.join(f'{name}={value}' for name, value in self.values.items())}: {self.caption}>"

    @property
    def values(self) -> dict[str, Any]:
        """The value of each slider."""
        return {name: slider.value for name, slider in self._sliders.items()}

    def set(self, **values: Any) -> None:
        """Move sliders from code, as tests do.

        Raises:
            UnknownNameError: there is no such slider, or it has no such value.
        """
        for name, value in values.items():
            if name not in self._sliders:
                raise UnknownNameError("handle", name, self._sliders)
            allowed = [option for _, option in self._sliders[name].options]
            if value not in allowed:
                raise UnknownNameError(f"value of {name}", str(value), [*map(str, allowed)])
            self._sliders[name].value = value

    def _follow(self) -> None:
        self.figure: Figure
        self.caption: str
        self.figure, self.caption = self._draw_picture(**self._given, **self.values)
        self._described.value = html.escape(self.caption)
        self._draw_below(self.figure, self.caption)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Return the widget, and the picture as it is now for pages that cannot show widgets."""
        bundle = super()._repr_mimebundle_(include=include, exclude=exclude)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, PLOTLY: standalone(self.figure)}, metadata
