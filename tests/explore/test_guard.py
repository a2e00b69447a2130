"""Requests with a foreign name or from a foreign page never reach the app."""

import asyncio

import pytest

from plrvo.explore.guard import guarded

PORT = 8765


def answered(kind: str, **headers: str) -> list[dict]:
    """What is sent back; the app behind the guard says `reached`."""
    sent: list[dict] = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"reached"})

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(dict(message))

    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(guarded(app, PORT, "default-src 'none'")({"type": kind, "headers": pairs}, receive, send))
    return sent


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765"])
def test_this_machine_is_answered_and_the_browser_held_to_it(host):
    start, body = answered("http", host=host)
    assert body["body"] == b"reached"
    assert (b"content-security-policy", b"default-src 'none'") in start["headers"]
    assert answered("websocket", host=host, origin=f"http://{host}")[1]["body"] == b"reached"


@pytest.mark.parametrize("host", ["evil.example:8765", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:8765", ""])
def test_a_foreign_name_is_refused(host):
    assert answered("http", host=host)[0]["status"] == 403
    assert answered("websocket", host=host, origin="http://127.0.0.1:8765")[0]["type"] == "websocket.close"
    assert answered("http")[0]["status"] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1:8765", "null", "http://127.0.0.1:1"])
def test_a_foreign_page_is_refused(origin):
    assert answered("http", host="127.0.0.1:8765", origin=origin)[0]["status"] == 403
    assert answered("websocket", host="127.0.0.1:8765", origin=origin)[0]["type"] == "websocket.close"


def test_a_connection_that_no_page_opened_is_refused():
    assert answered("websocket", host="127.0.0.1:8765")[0]["type"] == "websocket.close"
