"""Pictures: written whole, in the format that the name says, and showing what they should."""

import numpy as np
import pytest

from plrvo import Workload
from plrvo.designer import Problem, SearchSpace, pictures, winning_map
from plrvo.designer.predictor import ThetaPredictor, configurations
from plrvo.files import check_figure, write_figure
from plrvo.validate import InvalidArgument

HEADS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    return SearchSpace(Problem(Workload(0.04, 1250, 0.1, 26_010), 0.2, 1.0, 1e-5))


def test_the_search_space_picture_shows_its_parts(space):
    from plrvo.designer import Point

    figure = pictures.search_space(space, Point(1e6, 1.7e-6, 0.1))
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["feasible (c0 to c4, c2 by moments)", "Gaussian noise has this E|z|", "chosen"]
    assert figure.axes[1].get_ylabel() == "E|z| per coordinate"
    # The outline is where the constraints change: the band that was drawn holds feasible points only.
    _, low, high = space.outline
    assert np.any(high > low)


@pytest.mark.parametrize("suffix", HEADS)
def test_a_picture_is_written_in_the_format_of_its_name(space, tmp_path, suffix):
    path = tmp_path / f"space{suffix}"
    write_figure(pictures.search_space(space), path)
    assert path.read_bytes().startswith(HEADS[suffix])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["space", "space.gif", "space.json"])
def test_an_unknown_format_is_refused_before_anything_is_drawn(name, tmp_path):
    with pytest.raises(InvalidArgument, match=r"\.png, \.svg, \.pdf"):
        check_figure(tmp_path / name)


def test_the_other_pictures_are_drawn():
    found = winning_map(Workload(0.01, 300, 0.5, 1), 1e-5, (0.5, 4.0), (1, 3, 1000))
    figure = pictures.winning_map(found, "where a shape wins")
    assert figure.axes[0].get_title() == "where a shape wins"
    trained = ThetaPredictor.fit(configurations(60, np.random.default_rng(0)), np.random.default_rng(0))
    left, right = pictures.predictor(trained).axes
    assert len(left.get_lines()[1].get_xdata()) == len(trained.held_out.truth)
    assert [label.get_text() for label in right.get_yticklabels()][-1] == max(
        trained.importances, key=lambda name: trained.importances[name]
    )
