"""The checkpoints of a private trainer: which of them a run may go on from, and where they must not go.

In each lies a file that is secret: with the key of correlated noise, or a seed, anyone can compute all noise.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

from plrvo.records import Receipt
from plrvo.validate import InvalidArgument

PRIVATE = "private.safetensors"  # in each checkpoint: what `resume_from_checkpoint` goes on from; secret
_SECRET = f"checkpoints hold {PRIVATE}, which can give away all noise (or save_only_model=True: nothing to go on from)"
_STATE = "trainer_state.json"  # what a Trainer writes last
_UPLOADING = ("checkpoint", "all_checkpoints")  # of its strategies for the hub
_TRUE = ("1", "TRUE", "YES", "ON", "Y", "T")
# What makes the callbacks of `report_to` upload checkpoints, or the folder with them: a variable and its values.
_TRACKERS = {
    "WandbCallback": ("WANDB_LOG_MODEL", ("CHECKPOINT",)),
    "CometCallback": ("COMET_LOG_ASSETS", _TRUE),
    "MLflowCallback": ("HF_MLFLOW_LOG_ARTIFACTS", _TRUE),
    "DagsHubCallback": ("HF_DAGSHUB_LOG_ARTIFACTS", _TRUE),
    "DVCLiveCallback": ("HF_DVCLIVE_LOG_MODEL", ("ALL",)),
    "ClearMLCallback": ("CLEARML_LOG_MODEL", _TRUE),
}
_UNSAID = {"ClearMLCallback": "TRUE"}  # what may hold where nothing is said
# The same, said to the callback itself: an attribute and its values; None: whatever is true.
_ATTRIBUTES = {
    "WandbCallback": ("_log_model", ("CHECKPOINT",)),
    "DVCLiveCallback": ("_log_model", ("ALL",)),
    "NeptuneCallback": ("_log_checkpoints", None),
    "FlyteCallback": ("sync_checkpoints", None),
}


def saved(folder: Path) -> list[Path]:
    """The checkpoints that a private trainer wrote here, in order of their steps."""
    return sorted((file.parent for file in folder.glob(f"checkpoint-*/{PRIVATE}")), key=step_of)


def step_of(checkpoint: Path) -> int:
    """After which it was written."""
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def is_whole(checkpoint: Path) -> bool:
    """Whether nothing is missing that is written after the secret file, which itself is there whole or not at all."""
    try:
        state = json.loads((checkpoint / _STATE).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(state, dict) and (checkpoint / PRIVATE).is_file()


def resumed(given: Any, output: Path) -> str | None:
    """The checkpoint to go on from: the one that is given, or the last whole one.

    To go back behind one that was cut short in the writing is sound: the journal has its step, which is counted, or
    taken again with the same noise.
    """
    if not given:
        return None
    if given is not True:
        folder = Path(given)
    else:
        whole = [checkpoint for checkpoint in saved(output) if is_whole(checkpoint)]
        folder = whole[-1] if whole else output
        cut = [other.name for other in output.glob("checkpoint-*") if whole and step_of(other) > step_of(folder)]
        if cut:
            warnings.warn(
                f"{', '.join(sorted(cut))} was not written to its end: going on from {folder.name}", stacklevel=3
            )
    if not (folder / PRIVATE).is_file():
        raise InvalidArgument(
            "resume_from_checkpoint",
            given,
            f"a folder that a PrivateTrainer saved, with {PRIVATE} in it: others hold no ledger of steps",
        )
    if not is_whole(folder):
        raise InvalidArgument(
            "resume_from_checkpoint",
            folder.name,
            f"True, which goes on from the last whole checkpoint: this one has no {_STATE} that can be read",
        )
    return str(folder)


def refuse_earlier(folder: Path, receipt: Path, shown: int) -> None:
    """A checkpoint beside a later whole one, or a receipt of more steps than the journal knows to have been shown."""
    taken = step_of(folder)
    later = max((step_of(other) for other in saved(folder.parent) if is_whole(other)), default=0)
    if receipt.is_file() and (steps := Receipt.read(receipt).steps) > shown:
        later = max(later, steps)
    if taken < later:
        raise InvalidArgument(
            "resume_from_checkpoint",
            folder.name,
            f"the state after step {later}, the last that was saved here: what came before it was released, and other "
            "steps in its place would be in no ledger (another run: another output_dir)",
        )


def refuse_uploads(args: Any, callbacks: list[Any]) -> None:
    """Checkpoints that would be uploaded with the secret file in them."""
    if args.save_only_model:  # no checkpoint has it then; without a strategy a callback may ask for one
        return
    strategy = _word(args.hub_strategy)
    if args.push_to_hub and strategy in _UPLOADING:
        raise InvalidArgument("hub_strategy", strategy, f"every_save or end: {_SECRET}")
    for callback in callbacks:
        for kind in type(callback).__mro__:
            _refuse_tracker(kind.__name__, callback)


def _refuse_tracker(name: str, callback: Any) -> None:
    """One of transformers' own callbacks, of this name, that uploads checkpoints."""
    variable, values = _TRACKERS.get(name, ("", ()))
    value = os.environ.get(variable, _UNSAID.get(name, ""))
    if value.upper() in values:
        raise InvalidArgument(variable, value, f"false: {_SECRET}")
    attribute, known = _ATTRIBUTES.get(name, ("", ()))
    said = getattr(callback, attribute, None)
    if said and (known is None or _word(said).upper() in known):
        raise InvalidArgument("callbacks", f"{name} with {attribute.strip('_')}={_word(said)}", f"none: {_SECRET}")


def _word(value: Any) -> str:
    """Of an enumeration, or of a word."""
    return str(getattr(value, "value", value))
