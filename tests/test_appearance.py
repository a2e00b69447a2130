"""Each thing has a look of its own, which can be read on paper and on a dark page."""

import itertools

import pytest

from plrvo.appearance import GAMMA, STYLES, darken, lines, of, style_sheet

PAPER, NIGHT = "#ffffff", "#1e2129"  # the darkest ground is darker still


def luminance(colour: str) -> float:
    """As the guidelines for web content have it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", STYLES, ids=lambda look: look.name)
def test_every_colour_can_be_read(look):
    assert contrast(look.colour, PAPER) >= 4.5
    assert contrast(look.dark, NIGHT) >= 4.5


def test_no_two_look_alike_even_without_colours():
    for one, other in itertools.combinations(STYLES, 2):
        assert one.marker != other.marker
        for a, b in ((one.colour, other.colour), (one.dark, other.dark)):
            parts = [abs(int(a[i : i + 2], 16) - int(b[i : i + 2], 16)) for i in (1, 3, 5)]
            assert sum(parts) > 60


def test_a_page_gets_every_colour_for_both_schemes():
    sheet = style_sheet()
    for i, look in enumerate(STYLES):
        assert look.style == i
        assert f"--s{i}: {look.colour};" in sheet.partition("@media")[0]
        assert f"--s{i}: {look.dark};" in sheet.partition("@media")[2]


def test_a_name_has_the_look_of_its_kind():
    assert of("gaussian noise, same epsilon") is of("Gaussian") is of("gaussian")
    assert of("certified") is not of("lower")
    assert of("") is of("anything else")


def test_lines_of_one_noise_share_its_colour_and_others_are_told_apart():
    found = lines(["gamma", "gamma_score", "theta = 1", "theta = 2"])
    assert [line["color"] for line in found[:2]] == [GAMMA.colour] * 2
    assert found[0]["linestyle"] != found[1]["linestyle"]
    assert len({line["color"] for line in found[1:]}) == 3
    assert not {line["color"] for line in found[2:]} & {look.colour for look in STYLES[:-1]}


def test_a_picture_is_dark_at_night_with_the_colours_of_the_night():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    (line,) = axes.plot([0, 1], [0, 1], color=GAMMA.colour, label="gamma")
    axes.fill_between([0, 1], [0, 1], color=GAMMA.colour, alpha=0.25)
    text = axes.set_title("words")
    axes.legend(edgecolor="none")
    darken(figure)
    to_hex = pytest.importorskip("matplotlib.colors").to_hex
    assert to_hex(line.get_color()) == GAMMA.dark
    assert axes.collections[0].get_facecolor()[0][3] == 0.25
    ground = to_hex(figure.get_facecolor())
    assert contrast(ground, to_hex(text.get_color())) > 7
    assert luminance(ground) < 0.05
    assert axes.get_legend().get_frame().get_edgecolor()[3] == 0


def test_words_of_a_legend_can_be_read_at_night_whatever_grey_they_stood_on():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], label="words")
    legend = axes.legend(facecolor="#bbbbbb", framealpha=0.85)
    darken(figure)
    to_hex = pytest.importorskip("matplotlib.colors").to_hex
    (words,) = legend.get_texts()
    assert contrast(to_hex(legend.get_frame().get_facecolor()), to_hex(words.get_color())) > 7
