"""The page before anything is answered."""

from plrvo.explore import fragments
from plrvo.explore.question import USUAL, Question


def test_it_says_that_it_is_connecting_where_the_answer_will_be():
    page = fragments.document(USUAL, None)
    place = page.index('id="answer"')
    assert "Connecting to plrvo on this machine" in page[place : page.index("</div>", place)]


def test_the_few_words_of_a_budget_that_no_width_keeps_are_no_numbers():
    question = Question.read("epsilon=0.05&sample_rate=1&steps=1000000")
    assert fragments.short(question, None) == "no width keeps this budget"
