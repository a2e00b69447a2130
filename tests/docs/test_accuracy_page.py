"""The front page says what the committed runs give."""

from docs.figures import accuracy


def test_the_front_page_and_the_readme_are_what_the_script_writes() -> None:
    rows = accuracy.measured()
    assert rows
    for path, text in accuracy.pages(rows).items():
        assert path.read_text(encoding="utf-8") == text
    assert accuracy.section(rows) in accuracy.PAGE.read_text(encoding="utf-8")
    assert accuracy.lines(rows) in accuracy.README.read_text(encoding="utf-8")


def test_no_mark_hides_another_and_every_published_result_is_drawn() -> None:
    rows = accuracy.measured()
    places = [(p.task, accuracy.beside(p, 1.13)) for p in accuracy.PUBLISHED]
    places += [(row["parameters"]["task"], row["parameters"]["epsilon"]) for row in rows]
    assert len(set(places)) == len(places)
    figure = accuracy.draw(rows)
    drawn = {round(float(y), 1) for axes in figure.axes for line in axes.lines for y in line.get_ydata()}
    assert {point.accuracy for point in accuracy.PUBLISHED} <= drawn
    assert len(figure.axes) == len({row["parameters"]["task"] for row in rows})


def test_every_published_result_has_a_mark() -> None:
    assert len({point.source for point in accuracy.PUBLISHED}) <= len(accuracy.MARKS)
    assert {point.task for point in accuracy.PUBLISHED} <= set(accuracy.NAMES)
