"""F. The trainer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.misuse.row import ANY, Section
from tests.tasks.test_trainer_refusals import FLOATS, SEVERAL, head, made

from plrvo.tasks.trainer import PrivateTrainer
from plrvo.validate import InvalidArgument

F = Section("F. The trainer")


def _subclass(name: str) -> Any:
    def attempt(mode: str) -> None:
        kind = type("Own", (PrivateTrainer,), {name: lambda self, *args, **kwargs: None})
        with tempfile.TemporaryDirectory() as folder:
            made(Path(folder), kind=kind)

    return attempt


for _name in ("compute_loss", "training_step", "get_train_dataloader"):
    F.row(f"override `{_name}` of `PrivateTrainer`", "refused: it would not be called", modes=ANY,
          error=InvalidArgument, match=_name)(_subclass(_name))  # fmt: skip


def _with(**how: Any) -> Any:
    def attempt(mode: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            made(Path(folder), **{key: value() if callable(value) else value for key, value in how.items()}).train()

    return attempt


F.row("train a head for several labels at once", "works: the model's own loss, by example", modes=ANY)(
    _with(module=lambda: head(problem_type="multi_label_classification"), train_dataset=SEVERAL)
)
F.row("train a regression head", "works, likewise", modes=ANY)(
    _with(module=lambda: head(num_labels=1), train_dataset=FLOATS)
)
F.row("smooth labels in the arguments", "refused", modes=ANY, error=InvalidArgument, match="label_smoothing")(
    _with(settings={"label_smoothing_factor": 0.1})
)
