"""The page as a Shiny app: what is asked comes in as the query of a link, and goes out as HTML.

While a slider moves, `asked` changes and moments answer. When it has rested, `settled` follows, and the certificate is
computed in a thread. A certificate is shown beside the question that it belongs to, and no other.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from threading import BoundedSemaphore, Thread
from typing import Any, TypeVar

from shiny import App, Inputs, Outputs, Session, reactive, render, ui
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from plrvo.designer.comparison import Comparison, compare
from plrvo.explore import fragments
from plrvo.explore.answers import Certified, certify, quick
from plrvo.explore.question import USUAL, Question
from plrvo.report.page import digest
from plrvo.validate import InvalidArgument

Answer = TypeVar("Answer")
# Of their own, so that moments never wait for certificates, nor certificates for comparisons, which take longest. One
# that is no longer asked for, and waits, is dropped.
_CERTIFICATES, _COMPARISONS = BoundedSemaphore(2), BoundedSemaphore(1)


def make_app() -> App:
    """The app; it is served by whoever runs it."""
    app = App(_page, _server)
    made = fragments.assets()
    for path, content, kind in (
        ("/explore.css", made.style, "text/css"),
        ("/explore.js", made.script, "text/javascript"),
    ):
        app.starlette_app.router.routes.insert(0, _served(path, content, kind))
    return app


def _served(path: str, content: str, kind: str) -> Route:
    async def serve(_: Request) -> Response:
        return Response(content, media_type=kind)

    return Route(path, serve, methods=["GET"])


def policy() -> str:
    """What a browser may load for the page: files of this machine, and the scripts that shiny writes into it."""
    inline = re.findall(r"<script>(.*?)</script>", str(_document(USUAL, None).render()["html"]), re.DOTALL)
    allowed = " ".join(["'self'", *(f"'{digest(script)}'" for script in inline)])
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _page(request: Request) -> Any:
    try:
        return _document(Question.read(request.url.query), None)
    except InvalidArgument as error:
        return _document(USUAL, error)


def _document(question: Question, wrong: InvalidArgument | None) -> Any:
    return ui.page_html(fragments.document(question, wrong))


def _server(input: Inputs, output: Outputs, session: Session) -> None:
    @reactive.extended_task
    async def certificate(asked: str) -> tuple[str, Certified | str]:
        return asked, await _slowly(certify, Question.read(asked), _CERTIFICATES)

    @reactive.extended_task
    async def comparing(asked: str) -> tuple[str, Comparison | str]:
        return asked, await _slowly(_compared, Question.read(asked), _COMPARISONS)

    @reactive.effect
    @reactive.event(input.settled)
    def _start() -> None:
        certificate.cancel()
        if _read(input.settled()) is not None:
            certificate.invoke(input.settled())

    @reactive.effect
    @reactive.event(input.compare)
    def _compare() -> None:
        comparing.cancel()
        if _read(input.compare()) is not None:
            comparing.invoke(input.compare())

    @render.ui
    async def answer() -> Any:
        asked: str = input.asked()
        known = _result(certificate, asked)
        try:
            question = Question.read(asked)
            return ui.HTML(fragments.answer(question, await asyncio.to_thread(quick, question), known))
        except InvalidArgument as error:
            return ui.HTML(fragments.refusal(error))

    @render.text
    async def short() -> str:
        question, known = _read(input.asked()), _result(certificate, input.asked())
        return "" if question is None else await asyncio.to_thread(fragments.short, question, known)

    @render.ui
    def comparison() -> Any:
        if comparing.status() == "running":
            return ui.p("Comparing ...", class_="pending")
        found = _result(comparing, input.asked())
        return found if found is None or isinstance(found, str) else ui.HTML(fragments.comparison(found))


def _compared(question: Question) -> Comparison:
    epsilon = question.epsilon or certify(question).bracket.certified
    return compare(question.work, epsilon, question.delta)


async def _slowly(compute: Callable[[Question], Answer], question: Question, slots: BoundedSemaphore) -> Answer | str:
    """What takes seconds, beside everything else; or why there is no answer."""
    try:
        return await _in_slot(compute, question, slots)
    except (InvalidArgument, ArithmeticError) as error:
        return str(error)


def _in_slot(
    compute: Callable[[Question], Answer], question: Question, slots: BoundedSemaphore
) -> asyncio.Future[Answer]:
    """In a thread that nobody waits for at the end, as those of an executor are: Ctrl-C ends the page at once."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Answer] = loop.create_future()

    def settle(answer: Answer | None, error: BaseException | None) -> None:
        if found.done():  # nobody asks any more
            return
        if error is None:
            found.set_result(answer)  # type: ignore[arg-type]
        else:
            found.set_exception(error)

    def work() -> None:
        with slots:
            answer, error = None, None
            if found.cancelled():
                return
            try:
                answer = compute(question)
            except Exception as raised:
                error = raised
        with suppress(RuntimeError):  # the page has ended
            loop.call_soon_threadsafe(settle, answer, error)

    Thread(target=work, daemon=True, name="certificates").start()
    return found


def _read(query: str) -> Question | None:
    try:
        return Question.read(query)
    except InvalidArgument:
        return None


def _result(task: Any, asked: str) -> Any:
    """What a task has found, if that is what is asked now."""
    if task.status() != "success":
        return None
    about, found = task.result()
    return found if about == asked else None
