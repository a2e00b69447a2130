"""Groups whose commands are imported when they are called: help and a mistake in a word wait for none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer

from plrvo.cli.help import Command, Group
from plrvo.cli.listed import Listed


class Loaded(Mapping[str, Any]):
    """The commands of a table by name, each made when it is first asked for."""

    def __init__(self, listed: Mapping[str, Listed]) -> None:
        self._listed = listed
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(name, self._listed[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._listed  # that of a mapping would import the command to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


class LazyGroup(Group):
    """A group with the commands of the table `listed`."""

    listed: Mapping[str, Listed] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Loaded(self.listed)

    @property
    def summaries(self) -> dict[str, str]:
        """What each command says of itself in a line."""
        return {name: entry.summary for name, entry in self.listed.items()}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.listed)


def group_of(commands: Mapping[str, Listed]) -> type[LazyGroup]:
    """The class of a group with these commands; typer makes the group itself."""
    return type("ListedGroup", (LazyGroup,), {"listed": commands})


def _made(name: str, entry: Listed) -> Any:
    if entry.commands:
        group = typer.Typer(name=name, cls=group_of(entry.commands), help=entry.summary, no_args_is_help=True)
        return typer.main.get_group(group)
    module, _, function = entry.place.partition(":")
    app = typer.Typer(add_completion=False)
    app.command(name, cls=Command)(getattr(import_module(module), function))
    return typer.main.get_command(app)
