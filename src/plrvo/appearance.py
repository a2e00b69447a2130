"""One colour and one mark for each thing that pictures and pages show, wherever they show it.

What is claimed of an epsilon has the first three, noises the next, everything that has no meaning of its own the last.
The page of `plrvo report` takes the numbers of `STYLES`; pictures take colours, marks and dashes. Light colours have a
contrast of at least 4.5 on white, dark ones on the ground of dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Look:
    """How one thing is drawn: on white paper, on a dark page, as a mark and as a line (both as matplotlib has them)."""

    name: str
    colour: str
    dark: str
    marker: str
    dashes: str

    @property
    def style(self) -> int:
        """Its place among `STYLES`."""
        return STYLES.index(self)


CERTIFIED = Look("certified", "#0b63b5", "#6cb2ff", "s", "-")
LOWER = Look("lower", "#b3471b", "#ff9a66", "^", ":")
PUBLISHED = Look("published", "#7b2d8e", "#d79bf0", "D", "--")
GAUSSIAN = Look("gaussian", "#0f7a6c", "#4fd0bf", "o", "-")
LAPLACE = Look("laplace", "#8a6400", "#e3bd4c", "v", "--")
GAMMA = Look("gamma", "#b0255f", "#ff8fbd", "P", "-.")
OTHER = Look("other", "#525f6f", "#aab6c4", "X", ":")

STYLES = (CERTIFIED, LOWER, PUBLISHED, GAUSSIAN, LAPLACE, GAMMA, OTHER)
_BY_NAME = {look.name: look for look in STYLES}
_SPARE = ("#525f6f", "#4d4a9e", "#5c7a1f", "#a0522d", "#1f7a9e", "#99335f")  # of lines that are no noise and no claim
_SPARE_DARK = ("#aab6c4", "#a9a6f5", "#b5d667", "#e39a72", "#74c7ea", "#f08ab4")
_GROUND, _INK = "#1e2129", "#e8edf3"  # of dark pages of the site
_MARKERS, _DASHES = ("o", "s", "^", "D", "v", "P", "X", "*"), ("-", ":", "-.")


def of(name: str) -> Look:
    """How a kind of noise, or a kind of epsilon, is drawn: by the first word that has a look.

    >>> of("gamma").marker, of("gamma_score").name, of("generalised_gaussian").name, of("without privacy").name
    ('P', 'gamma', 'other', 'other')
    """
    words = re.split(r"[\s,_-]+", name.strip())
    return _BY_NAME.get(words[0].lower(), OTHER)


_WRITTEN = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "gamma": "Gamma",
    "fashion-mnist": "Fashion-MNIST",  # before the other, which it ends with
    "mnist": "MNIST",
    "cifar-10": "CIFAR-10",
    "snr": "SNR",
}


def written(name: str) -> str:
    """A name of data for people: noises and data sets as they are spelled.

    >>> written("gamma_score"), written("gamma-10"), written("8 bands, gaussian"), written(written("laplace l1"))
    ('Gamma score', 'Gamma-10', '8 bands, Gaussian', 'Laplace l1')
    >>> written("cifar-10"), written("fashion-mnist")
    ('CIFAR-10', 'Fashion-MNIST')
    """
    return re.sub(rf"\b({'|'.join(_WRITTEN)})\b", lambda found: _WRITTEN[found[1]], name.replace("_", " "))


def tick_logarithms(axis: Any) -> None:
    """Plain numbers in the place of powers of ten, as many as have room, where an axis has less than two decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if not 0 < high / 100 < low:
        return
    steps = (
        (1.0, 2.0, 3.0, 5.0, 8.0) if high < 8 * low else (1.0, 2.0, 3.0, 5.0) if high < 20 * low else (1.0, 2.0, 5.0)
    )
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if 1 <= value < 1e8 else f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def lines(names: Sequence[str], *, dashes: bool = True) -> list[dict[str, str]]:
    """How the lines of one picture are drawn, in the words of matplotlib: what has no look is told apart all the same.

    Of several lines with one look, as of a noise and of the same noise after its score, each has a mark of its own, as
    a line may be one point; and dashes of its own, unless those say something else.

    >>> [line["linestyle"] for line in lines(["gamma", "gamma_score", "gaussian"])]
    ['-', ':', '-']
    >>> [line["marker"] for line in lines(["gamma-10", "gamma-4e4", "gaussian"], dashes=False)]
    ['P', 'X', 'o']
    """
    found, used, spare = [], dict[str, int](), 0
    for name in names:
        look, times = of(name), used.get(of(name).name, 0)
        if look is OTHER:
            colour, marker, line = _SPARE[spare % len(_SPARE)], _MARKERS[spare % len(_MARKERS)], _DASHES[0]
            spare += 1
        else:
            place = (_MARKERS.index(look.marker) + times) % len(_MARKERS)
            line = _DASHES[times % len(_DASHES)] if dashes else _DASHES[0]
            colour, marker = look.colour, _MARKERS[place]
        used[look.name] = times + 1
        found.append({"color": colour, "marker": marker, "linestyle": line})
    return found


def darken(figure: Any) -> None:
    """Turn a picture of matplotlib, made for white paper, into one for a dark page.

    What has a look gets its dark colour, what is black or grey becomes light, and grounds become dark; the colours of
    maps stay.
    """
    from matplotlib.collections import Collection
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Text

    arrows = [part.arrow_patch for part in figure.findobj() if getattr(part, "arrow_patch", None) is not None]
    for part in (*figure.findobj(), *arrows):
        if isinstance(part, Line2D):
            part.set_color(_at_night(part.get_color()))
            part.set_markeredgecolor(_at_night(part.get_markeredgecolor()))
            part.set_markerfacecolor(_at_night(part.get_markerfacecolor(), ground=True))
        elif isinstance(part, Patch):
            part.set(facecolor=_at_night(part.get_facecolor(), ground=True), edgecolor=_at_night(part.get_edgecolor()))
        elif isinstance(part, Text):
            part.set_color(_at_night(part.get_color()))
        elif isinstance(part, Collection) and part.get_array() is None:
            part.set_facecolor([_at_night(colour, ground=True) for colour in part.get_facecolor()])
            part.set_edgecolor([_at_night(colour) for colour in part.get_edgecolor()])
    for legend in figure.findobj(Legend):  # whose words are light now, whatever grey they stood on
        legend.get_frame().set_facecolor(_GROUND)


def _at_night(colour: Any, ground: bool = False) -> Any:
    from matplotlib.colors import to_hex, to_rgb, to_rgba

    if isinstance(colour, str) and colour == "none":
        return colour
    red, green, blue, alpha = to_rgba(colour)
    if alpha == 0:
        return "none"
    known = {look.colour: look.dark for look in STYLES} | dict(zip(_SPARE, _SPARE_DARK, strict=True))
    if (found := known.get(to_hex(colour))) is not None:
        return (*to_rgb(found), alpha)
    grey = max(red, green, blue) - min(red, green, blue) < 0.1
    if grey and ground and min(red, green, blue) > 0.9:
        return (*to_rgb(_GROUND), alpha)
    return (*to_rgb(_INK), alpha) if grey and max(red, green, blue) < 0.75 else (red, green, blue, alpha)


def style_sheet() -> str:
    """The colours of `STYLES` as variables --s0, --s1, ... of a page, for light and for dark."""
    light = " ".join(f"--s{i}: {look.colour};" for i, look in enumerate(STYLES))
    dark = " ".join(f"--s{i}: {look.dark};" for i, look in enumerate(STYLES))
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
