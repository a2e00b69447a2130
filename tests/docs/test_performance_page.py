from docs.figures.performance import IMAGES, PAGE, _file, page, read


def test_the_performance_page_is_made_from_the_measurements():
    assert PAGE.read_text(encoding="utf-8") == page(read())


def test_every_picture_of_the_page_is_there():
    assert (IMAGES / "performance-steps.png").is_file()
    assert all(_file(row).is_file() for row in read()["groups"]["growth"])
