"""The page lists the rows that tests run."""

from docs.figures.misuse import PAGE, page


def test_the_page_is_as_the_catalogue_makes_it():
    assert PAGE.read_text(encoding="utf-8") == page()
