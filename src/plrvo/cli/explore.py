"""`plrvo explore`: a local page with sliders, behind which the accountant answers."""

from __future__ import annotations

import socket
import sys
import webbrowser
from typing import Annotated

import typer

from plrvo.cli import options, show
from plrvo.validate import InvalidArgument


def explore(
    port: Annotated[int, typer.Option("--port", help="Where the page is served; 0 takes any that is free.")] = 8765,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
    as_json: options.JsonOption = False,
) -> None:
    """A page with sliders for noise, workload and budget, which answers as they move. Ctrl-C ends it.

    It is served to this machine alone, and asks no other for anything. A link holds every value that it shows.

    Example: plrvo explore --port 8765
    """
    if not 0 <= port < 1 << 16:
        raise InvalidArgument("port", port, "a whole number from 0 to 65535")
    import uvicorn

    from plrvo.explore.guard import guarded
    from plrvo.explore.page import make_app, policy

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen()  # whoever follows the link before the page is there waits for it
    except OSError as error:
        raise InvalidArgument("port", port, f"a port that is free ({error.strerror}); 0 takes any") from None
    port = listening.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    if as_json:
        show.print_json({"url": url})
    else:
        print(f"page: {url} (Ctrl-C ends it)")
    sys.stdout.flush()  # it runs until it is ended
    config = uvicorn.Config(
        guarded(make_app(), port, policy()),
        log_level="warning",
        lifespan="off",
        ws="websockets-sansio",
        timeout_graceful_shutdown=1,
    )
    if browser:
        webbrowser.open(url)
    uvicorn.Server(config).run(sockets=[listening])
