from docs.figures import faster
from docs.figures.performance import _OLD, IMAGES, PAGE, _file, is_old, page, read


def test_the_performance_page_is_made_from_the_measurements():
    assert PAGE.read_text(encoding="utf-8") == page(read())


def test_every_picture_of_the_page_is_there():
    assert (IMAGES / "performance-steps.png").is_file()
    assert all(_file(row).is_file() for row in read()["groups"]["growth"])


def with_same_products(results):
    groups = results["groups"]
    rows = [{**row, "same_products": {"1": 1.07, "2": 1.11}} for row in groups["field"]]
    return {**results, "groups": {**groups, "field": rows}}


def without_same_products(results):
    groups = results["groups"]
    rows = [{key: value for key, value in row.items() if key != "same_products"} for row in groups["field"]]
    return {**results, "groups": {**groups, "field": rows}}


def test_the_page_is_written_with_the_same_products_or_without():
    named, nameless = "| same products |", "beside one with the same products"
    with_them, without = page(with_same_products(read())), page(without_same_products(read()))
    assert all(words in with_them for words in (named, nameless, "| 1.07 |", "| 1.11 |"))
    assert not any(words in without for words in (named, nameless))


def test_a_group_that_is_old_says_so_until_it_is_measured_again():
    results = read()
    for name, rows in results["groups"].items():
        if is_old(rows):
            again = {**results, "groups": {**results["groups"], name: [{**row, "ours": "now"} for row in rows]}}
            assert page(again).count(_OLD) == page(results).count(_OLD) - 1


def test_the_tables_of_models_come_first_and_what_makes_a_loop_faster_is_one_click_away():
    text = page(read())
    assert text.index("troubleshooting.md#faster") < text.index("{ #field }") < text.index("## All measurements")
    assert text.index("we want") > text.index("## All measurements")


def test_what_makes_a_loop_faster_is_made_from_the_measurements():
    text = faster.PAGE.read_text(encoding="utf-8")
    assert text == faster.page(read())
    assert faster.section(read()) in text
