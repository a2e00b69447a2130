"""The page before anything is answered."""

from plrvo.explore import fragments
from plrvo.explore.question import USUAL


def test_it_says_that_it_is_connecting_where_the_answer_will_be():
    page = fragments.document(USUAL, None)
    place = page.index('id="answer"')
    assert "Connecting to plrvo on this machine" in page[place : page.index("</div>", place)]
