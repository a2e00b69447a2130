"""What of a step is signal and what is noise, by what is trained: SST-2 and MiniLM, once its head has learned.

Of examples' clipped gradients the part that they have in common is the *signal*: of two different examples' the mean
inner product is the squared norm of the expected clipped gradient, estimated over all pairs. A step adds up about B of
them beside noise whose norm is sigma sqrt(n) for n coordinates, so that

    signal over noise = B sqrt(mean inner product) / (sigma sqrt(n)),

taken for the head and for the rest apart, as each has a norm and a dimension of its own. With one clip for everything
the part with the longest gradients takes most of it; `per_layer` gives every parameter the same share.

Under a head of random numbers no other part has anything to learn: what raises the score of one class for some
sentences lowers it for others. So the head is trained first, on the same sentences and without privacy, and all parts
are looked at beneath it. Nothing here is something that a private run may do; the sentences are public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from plrvo.accounting import Clipping, Workload
from plrvo.paper.classification import EXAMPLES, MINILM_PACKAGE, PACKAGES, TINY
from plrvo.paper.entry import Context, Entry, Group, Measured, Needs, Panel, Result, Row, Scale
from plrvo.paper.training import fitted

EPSILON, RATE, STEPS = 3.0, 0.0152, 300  # batches of about 1,024
LOOKED_AT = {Scale.smoke: 60, Scale.quick: 1024, Scale.full: 4096}
FLAT, BY_PARAMETER = str(Clipping.flat), str(Clipping.per_layer)
HEAD, REST = "head", "rest"
FITTED = {"steps": 300, "lr": 0.02}  # AdamW over all sentences at once, as `plrvo train sst2` trains a head


@dataclass(frozen=True)
class Part:
    """What is trained, as tasks name it."""

    name: str
    options: tuple[tuple[str, Any], ...]
    clipping: str = FLAT

    @property
    def key(self) -> str:
        return f"{self.name}-{self.clipping}".replace(" ", "-").replace(",", "")


PARTS = (
    Part("head", (("trainable", "head"),)),
    Part("biases", (("trainable", "bias"),)),
    Part("biases", (("trainable", "bias"),), BY_PARAMETER),
    Part("low rank, two layers", (("trainable", "lora"), ("layers", 2)), FLAT),
    Part("low rank, two layers", (("trainable", "lora"), ("layers", 2)), BY_PARAMETER),
    Part("all layers", (("trainable", "all"),)),
    Part("all layers", (("trainable", "all"),), BY_PARAMETER),
)


class Signal:
    """Of one group of parameters: what clipped gradients have in common."""

    def __init__(self) -> None:
        self.total: dict[int, Any] = {}
        self.squares, self.count = 0.0, 0

    def add(self, gradients: dict[int, Any]) -> None:
        """The clipped gradient of one more example, by parameter."""
        for number, gradient in gradients.items():
            self.total[number] = gradient.clone() if number not in self.total else self.total[number].add_(gradient)
        self.squares += squared(gradients)
        self.count += 1

    @property
    def common(self) -> float:
        """The root of the mean inner product of two examples' gradients; zero where that is below zero."""
        pairs = self.count * (self.count - 1)
        return math.sqrt(max(0.0, (squared(self.total) - self.squares) / pairs))

    @property
    def dimension(self) -> int:
        return sum(t.numel() for t in self.total.values())


def squared(gradients: dict[int, Any]) -> float:
    """The squared norm."""
    return sum(float(g.double().square().sum()) for g in gradients.values())


def clipped(gradients: dict[int, Any], clipping: str) -> dict[int, Any]:
    """With norm at most 1, all together or each parameter with its share."""
    if clipping == FLAT:
        scale = min(1.0, 1 / max(math.sqrt(squared(gradients)), 1e-30))
        return {number: g * scale for number, g in gradients.items()}
    share = 1 / math.sqrt(len(gradients))
    return {n: g * min(1.0, share / max(math.sqrt(squared({n: g})), 1e-30)) for n, g in gradients.items()}


def gradients_of(task: Any, module: Any, indices: Sequence[int]) -> Iterator[dict[int, Any]]:
    """Each example's own, by the number of the parameter."""
    import torch

    from plrvo.training.loop import forward

    trained = [p for p in module.parameters() if p.requires_grad]
    for index in indices:
        inputs, labels = task.data.__getitems__([index])
        loss = task.loss(forward(module, inputs), labels)
        found: Any = torch.autograd.grad(loss, trained, allow_unused=True)
        yield {n: torch.zeros_like(p) if g is None else g for n, (p, g) in enumerate(zip(trained, found, strict=True))}


def head_of(module: Any) -> set[int]:
    """The numbers of those trained parameters that stand on top of the pretrained part."""
    model = getattr(module, "model", module)
    pretrained = {id(p) for p in model.base_model.parameters()} if hasattr(model, "base_model") else set()
    return {n for n, p in enumerate(p for p in module.parameters() if p.requires_grad) if id(p) not in pretrained}


def fit_head(task: Any, module: Any) -> float:
    """Train the head alone; returns its loss. Of a head of two layers, the last one."""
    import torch
    from torch import nn

    from plrvo.training.loop import forward

    numbers, trained = head_of(module), [p for p in module.parameters() if p.requires_grad]
    own = {id(trained[n]) for n in numbers}
    head = [m for m in module.modules() if isinstance(m, nn.Linear) and id(m.weight) in own][-1]
    # All of them before the hook is there: what computes features when it is first asked goes through the same head.
    examples = [task.data.__getitems__([index]) for index in range(task.size)]
    seen: list[Any] = []
    hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    with torch.no_grad():
        for inputs, _ in examples:
            forward(module, inputs)
    hook.remove()
    features, answers = torch.cat(seen), torch.cat([label for _, label in examples])
    optimizer = torch.optim.AdamW(head.parameters(), lr=FITTED["lr"], weight_decay=0.0)
    for _ in range(int(FITTED["steps"])):
        optimizer.zero_grad()
        loss: Any = nn.functional.cross_entropy(head(features), answers)
        loss.backward()
        optimizer.step()
    module.zero_grad()
    return float(loss.detach())


def _measure(part: Part, context: Context) -> Measured:
    from plrvo.paper.tiny import tiny_classifier
    from plrvo.tasks import catalog
    from plrvo.tasks.settings import Streams

    is_smoke = context.scale is Scale.smoke
    model = tiny_classifier(context.folder / TINY) if is_smoke else "minilm"
    options = {**dict(part.options), "max_length": 64, "limit": LOOKED_AT[context.scale]}
    if is_smoke:  # it has one layer
        options.pop("layers", None)
    request = catalog.Request("sst2", model, context.data_dir, options, context.kept)
    preset = catalog.prepare(request, Streams.from_seed(context.seed).weights)
    task, module = preset.task, preset.module.eval()
    context.say(f"{part.name}, its head")
    loss = fit_head(task, module)
    head, shares = head_of(module), []
    signals = {HEAD: Signal(), REST: Signal()}
    for done, gradients in enumerate(gradients_of(task, module, range(task.size))):
        if done % 32 == 0:
            context.say(f"{part.name}, sentence {done}")
        of_head = {n: g for n, g in gradients.items() if n in head}
        shares.append(math.sqrt(squared(of_head) / max(squared(gradients), 1e-60)))
        kept = clipped(gradients, part.clipping)
        signals[HEAD].add({n: g for n, g in kept.items() if n in head})
        signals[REST].add({n: g for n, g in kept.items() if n not in head})
    dimension = sum(signal.dimension for signal in signals.values())
    size = EXAMPLES["sst2"]
    work = Workload(RATE, STEPS, 1.0, dimension)
    plan = fitted("gaussian", work, EPSILON, 1 / (2 * size), clipping=Clipping.named(part.clipping))
    sigma = math.sqrt(plan.noise.variance)
    ratios = {
        name: RATE * size * signal.common / (sigma * math.sqrt(signal.dimension)) if signal.dimension else None
        for name, signal in signals.items()
    }
    details = {
        "dimension": {name: signal.dimension for name, signal in signals.items()},
        "common": {name: signal.common for name, signal in signals.items()},
        "sigma": sigma,
        "sentences": len(shares),
        "loss of the head": loss,
    }
    return Measured({**ratios, "head_share": 100 * median(shares), "dimension": dimension}, {}, details=details)


def _rows(scale: Scale) -> Sequence[Row]:
    return [
        Row(
            key=part.key,
            label=part.name if part.name == HEAD else f"{part.name}, {_SAID[part.clipping]}",
            parameters={"trained": part.name, "clipping": part.clipping},
            printed=dict.fromkeys((HEAD, REST, "head_share", "dimension")),
            measure=partial(_measure, part),
        )
        for part in PARTS
    ]


_SAID = {FLAT: "one clip", BY_PARAMETER: "a clip for each parameter"}


def findings(rows: Sequence[Result]) -> list[str]:
    """Who takes the clip, and what that leaves to the others."""
    told = []
    for name in dict.fromkeys(row["parameters"]["trained"] for row in rows):
        found = {row["parameters"]["clipping"]: row["measured"] for row in rows if row["parameters"]["trained"] == name}
        if name == HEAD or len(found) < 2:
            continue
        flat, each = found[FLAT], found[BY_PARAMETER]
        told.append(
            f"{name}: the head has {flat['head_share']:.1f} % of the norm of an example's gradient (median). With one "
            f"clip the rest has a signal of {flat[REST]:.3f} of the noise in a step, with a clip for each parameter "
            f"{each[REST]:.3f}; the head {flat[HEAD]:.2f} and {each[HEAD]:.2f}."
        )
    return [
        *told,
        "Over T steps that agree a ratio grows by the root of T. Beneath a head that has learned, with Gaussian noise "
        f"of certified epsilon {EPSILON:g}, {STEPS} steps and batches of about {RATE * EXAMPLES['sst2']:,.0f}.",
    ]


ENTRIES = (
    Entry(
        name="study-signal",
        title="SST-2: how much of a step is signal, by what is trained",
        where="what a private step can see of examples' gradients, once the head has learned",
        rows=_rows,
        needs={
            Scale.smoke: Needs(0.3, ("sst2",), (*PACKAGES, "peft")),
            Scale.quick: Needs(4, ("sst2",), (*PACKAGES, "peft", MINILM_PACKAGE)),
            Scale.full: Needs(30, ("sst2",), (*PACKAGES, "peft", MINILM_PACKAGE)),
        },
        panels=(
            Panel(
                "dimension",
                (REST, HEAD),
                "parameters that are trained",
                "signal over noise, one step",
                lines="clipping",
                xlog=True,
                ylog=True,
            ),
        ),
        findings=findings,
        stand_in={
            Scale.smoke: "sixty sentences and a model with random weights",
            Scale.quick: "the first 1,024 sentences",
            Scale.full: "the first 4,096 sentences",
        },
        group=Group.study,
    ),
)
