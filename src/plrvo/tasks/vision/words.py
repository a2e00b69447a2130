"""What is asked for by name of image tasks: models and views. Nothing here needs torch."""

from __future__ import annotations

from plrvo.tasks.catalog import Request
from plrvo.validate import InvalidArgument, nearest

FEATURE_HEAD, SCATTERING, SCATTERING_CNN = "efficientnet-lite0-head", "scattering", "scattering-cnn"
NAMES = ("cnn", "cnn-tanh", "cnn-norm", "logistic", "resnet18", "vit", FEATURE_HEAD, SCATTERING, SCATTERING_CNN)
ON_SCATTERING = (SCATTERING, SCATTERING_CNN)
SHIFTS = ((0, 0), (0, 2), (0, -2), (2, 0), (-2, 0), (2, 2), (-2, -2), (2, -2), (-2, 2))
# What is in a photograph may stand the other way round; a digit may not, and of clothes it is not said.
MIRRORED = ("cifar-10", "cifar-100")


def check(request: Request) -> None:
    """Refuse what no image task has."""
    if request.model is not None:
        check_model(request.model)
    check_views(request.name, request.options.get("views", 1), request.model)


def check_model(name: str) -> None:
    """Refuse a model that there is not; whether a checkpoint can be read is seen when it is."""
    kind, _, checkpoint = name.partition(":")
    if kind not in NAMES or (checkpoint and kind != "vit") or name.endswith(":"):
        guess = nearest(name, NAMES)
        more = f"; did you mean {guess}?" if guess else ""
        raise InvalidArgument("model", name, f"one of {', '.join(NAMES)}, or vit:NAME_OR_FOLDER{more}")


def check_views(name: str, views: int, model: str | None = None) -> None:
    """Refuse more views than there are."""
    most = len(SHIFTS) * (2 if name in MIRRORED else 1)
    if views > most:
        raise InvalidArgument("views", views, f"at most {most}, the views that there are of {name}")
    if views > 1 and model == FEATURE_HEAD:
        raise InvalidArgument("views", views, f"no value beside the model {model}, whose features are of one view")
