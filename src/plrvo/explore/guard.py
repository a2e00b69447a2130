"""Who may speak to the page: a browser on this machine that was sent here by nobody.

A page elsewhere can point its own name at 127.0.0.1, and open connections to it from the browser of whoever visits.
Such requests carry a foreign name in `Host`, or a foreign page in `Origin`: both are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

NAMES = ("127.0.0.1", "localhost")
_REFUSED = b"plrvo explore: this page is for http://127.0.0.1 and http://localhost only\n"


def guarded(app: App, port: int, policy: str) -> App:
    """The app, for requests to and from this machine alone; `policy` holds the browser to it as well."""
    hosts = {f"{name}:{port}".encode() for name in NAMES}
    origins = {b"http://" + host for host in hosts}

    async def guard(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        own = headers.get(b"host") in hosts and headers.get(b"origin", b"") in origins | {b""}
        if own and (scope["type"] == "http" or b"origin" in headers):
            await app(scope, receive, _with_policy(send, policy))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": _REFUSED})

    return guard


def _with_policy(send: Send, policy: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(b"content-security-policy", policy.encode()), (b"referrer-policy", b"no-referrer")]
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return sending
