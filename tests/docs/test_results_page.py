from docs.figures.results_page import PAGE, page


def test_the_results_page_is_made_from_the_result_files():
    assert PAGE.read_text(encoding="utf-8") == page()
