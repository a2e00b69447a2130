"""The page says what the committed runs say."""

from docs.figures.tight import PAGE, page


def test_the_page_is_as_the_results_make_it():
    assert PAGE.read_text(encoding="utf-8") == page()
