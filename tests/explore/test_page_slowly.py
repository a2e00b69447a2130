"""What takes seconds runs beside the page, and does not outlive it."""

import asyncio
import threading

import pytest

from plrvo.explore.question import USUAL

page = pytest.importorskip("plrvo.explore.page")


def test_nobody_waits_at_the_end_for_a_certificate_that_is_computed():
    def compute(question):
        return threading.current_thread().daemon  # an executor's threads are joined when Python ends

    assert asyncio.run(page._slowly(compute, USUAL, page._CERTIFICATES)) is True


def test_an_answer_that_there_is_not_is_said_in_words():
    def compute(question):
        raise ArithmeticError("nothing fits")

    assert asyncio.run(page._slowly(compute, USUAL, page._CERTIFICATES)) == "nothing fits"
