"""Layers and architectures, each measured in the engine against a loop over single examples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from opacus.layers import DPGRU, DPLSTM, DPRNN, DPMultiheadAttention
from opacus.layers.dp_multihead_attention import SequenceBias
from tests.training.helpers import given
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset

import plrvo
from plrvo.training.call import tensors_in
from plrvo.validate import InvalidArgument

ROWS, CLIP = 5, 0.05


def numbers(*shape: int) -> Tensor:
    return torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(8))


def words(*shape: int) -> Tensor:
    return torch.randint(1, 9, (ROWS, *shape), generator=torch.Generator().manual_seed(8))


@dataclass(frozen=True)
class Case:
    """A module, and a batch for it: a tensor, or tensors by name."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], Any]
    dimension: int = 0  # where the examples are
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What becomes of it."""

    way: str  # fast, fallback, functorch or refused
    difference: float | None  # from the loop, in clips
    said: str | None  # when it was refused in mode auto, or came to functorch in it


def measured(case: Case) -> Found:
    """In mode auto; where that is refused, by functorch."""
    said = None
    for mode in ("auto", "functorch"):
        try:
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                chosen, difference = _difference(case, mode)
        except (InvalidArgument, RuntimeError) as refused:
            said = said or " ".join(str(refused).split())
            continue
        said = said or next((str(w.message) for w in heard if "functorch instead" in str(w.message)), None)
        return Found({"bookkeeping": "fast", "hooks": "fallback"}.get(chosen, chosen), difference, said)
    return Found("refused", None, said)


def _made(case: Case) -> nn.Module:
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(6)
        return case.make().train()


def _named(case: Case) -> dict[str, Tensor]:
    inputs = case.inputs()
    return inputs if isinstance(inputs, dict) else {"": inputs}


def _called(module: nn.Module, inputs: dict[str, Tensor]) -> Any:
    return module(inputs[""]) if "" in inputs else module(**inputs)


def _score(output: Any, dimension: int) -> Tensor:
    """A number for each example, from the first output; large, so that most gradients are clipped."""
    first = next(t for t in tensors_in(getattr(output, "logits", output)) if t.is_floating_point())
    rows = first.movedim(dimension, 0).flatten(1)
    return 100 * (rows * torch.linspace(-1, 1, rows.shape[1])).tanh().sum(dim=1)


def _by_loop(module: nn.Module, inputs: dict[str, Tensor], dimension: int) -> Tensor:
    parameters = [p for p in module.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    for i in range(ROWS):
        one = {name: value.narrow(dimension, i, 1) for name, value in inputs.items()}
        score = _score(_called(module, one), dimension).sum()
        found = torch.autograd.grad(score, parameters, allow_unused=True, materialize_grads=True)
        gradient = torch.cat([g.flatten() for g in found]).double()
        total += gradient * min(1.0, CLIP / float(gradient.norm()))
    return total


class _Rows(Dataset[Any]):
    def __init__(self, inputs: dict[str, Tensor], dimension: int) -> None:
        self.inputs, self.dimension = inputs, dimension

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: value.select(self.dimension, index) for name, value in self.inputs.items()}


def _difference(case: Case, mode: str) -> tuple[str, float]:
    module, inputs, engine = _made(case), _named(case), plrvo.PrivacyEngine()
    engine.validate(module=module)
    expected = _by_loop(_made(case), inputs, case.dimension)
    private, optimizer, _ = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1),
        data_loader=DataLoader(_Rows(inputs, case.dimension)),
        noise_multiplier=1e-9,
        max_grad_norm=CLIP,
        grad_sample_mode=mode,
        expected_batch_size=1,
        batch_first=case.dimension == 0,
        **case.options,
    )
    given(optimizer, ROWS)
    _score(_called(private, inputs), case.dimension).mean().backward()
    optimizer.pre_step()
    released = torch.cat([p.grad.flatten() for p in optimizer.params]).double()
    chosen = "hooks" if getattr(private, "replaying", ()) else str(engine.grad_sample_mode)
    if getattr(private, "has_fallen_back", False):
        chosen = "functorch"
    return chosen, float((released - expected).norm()) / CLIP


class Doubled(nn.Conv1d):
    """Overrides what `forward` calls, not `forward`."""

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(x, weight * 2, bias)


class FirstToken(nn.Module):
    """A parameter of its own in front of every sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Parameter(torch.randn(1, 1, 6)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([self.first.expand(len(x), -1, -1), x], dim=1).tanh().mean(dim=1))


class Positions(nn.Module):
    """Positions are looked up once for all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe, self.out = nn.Embedding(9, 6), nn.Embedding(7, 6), nn.Linear(6, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out((self.wte(ids) + self.positions(*ids.shape)).tanh())

    def positions(self, rows, length):
        return self.wpe(torch.arange(length))


class PositionsInFront(Positions):
    def positions(self, rows, length):
        return self.wpe(torch.arange(length)).unsqueeze(0)


class PositionsRepeated(Positions):
    def positions(self, rows, length):
        return self.wpe(torch.arange(length))[None].repeat(rows, 1, 1)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(9, 6), nn.Linear(6, 9, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.words(ids).tanh())


class Sequences(nn.Module):
    """The outputs of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class PackedSequences(nn.Module):
    """Of different lengths, which the layer sorts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x[:, :, 0] > 0).sum(dim=1).clamp(min=1)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.layer(packed)[1][0][-1]


class Attention(nn.Module):
    def __init__(self, kind: Any, turned: bool = False, **options: Any) -> None:
        super().__init__()
        self.attention, self.turned = kind(6, 2, **options), turned

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1) if self.turned else x
        found: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return found.transpose(0, 1) if self.turned else found


def _patched() -> nn.Module:
    layer = nn.Linear(6, 3)
    plain = layer.forward
    layer.forward = lambda x: 2 * plain(x)  # type: ignore[method-assign]
    return nn.Sequential(layer)


def _of(layer: Callable[[], nn.Module], *shape: int, name: str) -> Case:
    return Case(name, lambda: nn.Sequential(layer(), nn.Flatten()), lambda: numbers(*shape))


LAYERS = [
    Case("Linear", lambda: nn.Linear(6, 3), lambda: numbers(6)),
    Case("Linear on sequences", lambda: nn.Linear(6, 3), lambda: numbers(4, 6)),
    *(
        _of(lambda n=n, o=o: getattr(nn, f"Conv{n}d")(4, 6, 3, **o), 4, *[7] * n, name=f"Conv{n}d{says}")
        for n in (1, 2, 3)
        for says, o in (
            ("", {}),
            (", strides, groups and dilation", {"stride": 2, "groups": 2, "dilation": 2, "padding": 2}),
            (", circular padding", {"padding": 1, "padding_mode": "circular"}),
            (', padding="same"', {"padding": "same"}),
        )
    ),
    Case(
        "Conv2d, channels last",
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 2, 3)).to(memory_format=torch.channels_last),
        lambda: numbers(4, 7, 7).to(memory_format=torch.channels_last),
    ),
    Case("Conv1d that overrides `_conv_forward`", lambda: nn.Sequential(Doubled(4, 6, 3)), lambda: numbers(4, 7)),
    Case("a layer whose `forward` was patched", _patched, lambda: numbers(6)),
    _of(lambda: nn.ConvTranspose1d(4, 3, 3, 2), 4, 5, name="ConvTranspose1d"),
    _of(lambda: nn.ConvTranspose2d(4, 3, 3, 2), 4, 5, 5, name="ConvTranspose2d"),
    Case("Embedding", lambda: nn.Sequential(nn.Embedding(9, 4, padding_idx=0)), lambda: words(6)),
    Case("EmbeddingBag", lambda: nn.Sequential(nn.EmbeddingBag(9, 4)), lambda: words(6)),
    Case("positions, `wpe(torch.arange(T))`", Positions, lambda: words(6)),
    Case("positions, `wpe(torch.arange(T)).unsqueeze(0)`", PositionsInFront, lambda: words(6)),
    Case("positions, `wpe(torch.arange(T)).repeat(B, 1, 1)`", PositionsRepeated, lambda: words(6)),
    Case("tied embeddings", Tied, lambda: words(6)),
    Case("a parameter of the module itself (first token)", FirstToken, lambda: numbers(4, 6)),
    _of(lambda: nn.Conv2d(4, 8, 3, groups=4), 4, 7, 7, name="Conv2d, depthwise"),
    _of(lambda: nn.LayerNorm(6), 4, 6, name="LayerNorm"),
    _of(lambda: nn.RMSNorm(6), 4, 6, name="RMSNorm"),
    _of(lambda: nn.GroupNorm(2, 4), 4, 5, 5, name="GroupNorm"),
    _of(lambda: nn.InstanceNorm1d(4, affine=True), 4, 7, name="InstanceNorm1d"),
    _of(lambda: nn.InstanceNorm2d(4, affine=True), 4, 5, 5, name="InstanceNorm2d"),
    _of(lambda: nn.InstanceNorm3d(4, affine=True), 4, 3, 3, 3, name="InstanceNorm3d"),
    _of(lambda: nn.BatchNorm1d(6), 6, name="BatchNorm1d"),
    _of(lambda: nn.PReLU(4), 4, 5, name="PReLU"),
    _of(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)), 6, name="Linear with weight_norm"),
    Case("nn.Bilinear", lambda: _Bilinear(), lambda: numbers(6)),
    Case("SequenceBias", lambda: SequenceBias(6, batch_first=True), lambda: numbers(4, 6)),
    Case("DPLSTM", lambda: Sequences(DPLSTM(6, 4, batch_first=True)), lambda: numbers(4, 6)),
    Case(
        "DPLSTM, two layers, both directions",
        lambda: Sequences(DPLSTM(6, 4, num_layers=2, bidirectional=True, batch_first=True)),
        lambda: numbers(4, 6),
    ),
    Case("DPGRU", lambda: Sequences(DPGRU(6, 4, batch_first=True)), lambda: numbers(4, 6)),
    Case("DPRNN", lambda: Sequences(DPRNN(6, 4, batch_first=True)), lambda: numbers(4, 6)),
    *(
        Case(
            f"nn.{kind.__name__}{says}",
            lambda kind=kind, o=o: Sequences(kind(6, 4, batch_first=True, **o)),
            lambda: numbers(4, 6),
        )
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
        for says, o in (("", {}), (", two layers, both directions", {"num_layers": 2, "bidirectional": True}))
    ),
    Case(
        "nn.LSTM, projections",
        lambda: Sequences(nn.LSTM(6, 4, batch_first=True, proj_size=2)),
        lambda: numbers(4, 6),
    ),
    Case("nn.LSTM, packed sequences", lambda: PackedSequences(), lambda: numbers(4, 6)),
    Case("nn.MultiheadAttention", lambda: Attention(nn.MultiheadAttention, batch_first=True), lambda: numbers(4, 6)),
    Case(
        "nn.MultiheadAttention by get_compatible_module",
        lambda: plrvo.PrivacyEngine.get_compatible_module(Attention(nn.MultiheadAttention, batch_first=True)),
        lambda: numbers(4, 6),
    ),
    Case(
        "DPMultiheadAttention, batch_first=True",
        lambda: Attention(DPMultiheadAttention, batch_first=True),
        lambda: numbers(4, 6),
    ),
    Case(
        "DPMultiheadAttention, batch_first=False, in a model with examples first",
        lambda: Attention(DPMultiheadAttention, turned=True),
        lambda: numbers(4, 6),
    ),
    Case(
        "DPMultiheadAttention, batch_first=False, in a model with examples second",
        lambda: Attention(DPMultiheadAttention),
        lambda: numbers(4, 6).transpose(0, 1).contiguous(),
        dimension=1,
    ),
]


class _Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Bilinear(6, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x)


def architectures() -> list[Case]:
    """Tiny random models of transformers, and adapters of peft."""
    from peft import IA3Config, LoraConfig, PromptTuningConfig, get_peft_model
    from tests.tasks.architectures import MODELS, batch, model

    from plrvo.tasks.objective import with_decoder_inputs

    def inputs(name: str) -> Any:
        found = with_decoder_inputs(model(name), batch(name, ROWS))
        return {key: value for key, value in found.items() if key != "labels"}

    def adapted(config: Any) -> nn.Module:
        made: nn.Module = get_peft_model(model("BERT, sentences"), config)
        for name, p in made.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(p, std=0.1)  # zero at first, which would leave other gradients zero
        return made

    task: dict[str, Any] = {"task_type": "SEQ_CLS"}
    low_rank = {**task, "r": 2, "target_modules": ["query", "value"], "lora_dropout": 0.0}
    adapters: dict[str, Any] = {
        "LoRA": LoraConfig(**low_rank),
        "DoRA": LoraConfig(**low_rank, use_dora=True),
        "IA3": IA3Config(**task, target_modules=["key", "value"], feedforward_modules=[]),
        "prompt tuning": PromptTuningConfig(**task, num_virtual_tokens=3),
    }
    return [
        *(Case(name, lambda name=name: model(name), lambda name=name: inputs(name)) for name in MODELS),
        *(
            Case(
                f"BERT with {name} (peft)",
                lambda config=config: adapted(config),
                lambda: inputs("BERT, sentences"),
            )
            for name, config in adapters.items()
        ),
    ]
