"""What a link may ask, and what it may not."""

import pytest

from plrvo.explore.question import LIMITS, USUAL, Question
from plrvo.validate import InvalidArgument


@pytest.mark.parametrize(
    "query",
    [
        "",
        "noise=laplace&width=0.7&clip=0.3",
        "noise=gamma&k=20&epsilon=2&dimension=1",
        "examples=50000&batch=512&epochs=12.5&delta=1e-6",
    ],
)
def test_a_link_restores_its_question(query):
    question = Question.read(query)
    assert Question.read(question.query) == question


def test_data_batch_and_epochs_are_rate_and_steps():
    work = Question.read("examples=60000&batch=600&epochs=30").work
    assert (work.sample_rate, work.steps) == (0.01, 3000)


def test_a_width_is_the_size_in_clips_of_every_noise():
    at = {kind: USUAL.at(kind, 0.7) for kind in ("gaussian", "laplace", "gamma")}
    assert at["gaussian"].gaussian_sigma == 0.7
    assert at["laplace"].distortion == pytest.approx(0.7)
    assert at["gamma"].distortion == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("query", "argument"),
    [
        ("noise=__import__('os')", "noise"),
        ("noise=generalised_gaussian", "noise"),
        ("width=nan", "width"),
        ("width=inf", "width"),
        ("width=-1", "width"),
        ("width=1_1", "width"),
        ("sample_rate=0.1&steps=", "steps"),
        ("epsilon=", "epsilon"),
        ("examples=&batch=&epochs=", "examples"),
        ("width=1&width=2", "width"),
        ("width=1&epsilon=1", "width"),
        ("epsilon=0", "epsilon"),
        ("steps=1.5", "steps"),
        ("steps=9999999999", "steps"),
        ("sample_rate=1.1", "sample_rate"),
        ("sample_rate=0.1&batch=5&examples=100&epochs=1", "sample_rate"),
        ("examples=1000&batch=2000&epochs=1", "batch"),
        ("batch=20", "examples"),
        ("delta=1", "delta"),
        ("noise=gamma&k=1", "k"),
        ("noise_file=/etc/passwd", "noise_file"),
        ("width=" + "1" * 3000, "link"),
        ("dimension=" + "9" * 1900, "dimension"),
        ("width=%00", "width"),
    ],
)
def test_bad_links_are_refused_with_the_name_of_the_value(query, argument):
    with pytest.raises(InvalidArgument) as refused:
        Question.read(query)
    assert refused.value.argument == argument
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("name", LIMITS)
def test_both_ends_of_every_slider_are_questions(name):
    """Beside others with which rate and steps are within their own."""
    for value in LIMITS[name]:
        beside = {"examples": f"&batch={value // 100:.0f}&epochs=1", "batch": f"&examples={100 * value:.0f}&epochs=1"}
        beside["epochs"] = "&examples=1000&batch=100"
        Question.read(f"noise=gamma&{name}={value}{beside.get(name, '')}")


@pytest.mark.parametrize(
    ("link", "named"),
    [
        ("examples=100000000&batch=1&epochs=0.01", "sample_rate=1e-08"),
        ("examples=100000&batch=1&epochs=1000", "steps=100000000"),
    ],
)
def test_what_follows_from_the_data_keeps_the_limits_of_the_page(link, named):
    with pytest.raises(InvalidArgument, match=named):
        Question.read(link)


@pytest.mark.parametrize("sent", [3, None, ["steps=1"], {"steps": 1}])
def test_what_is_no_text_is_refused(sent):
    with pytest.raises(InvalidArgument, match="expected a text"):
        Question.read(sent)
