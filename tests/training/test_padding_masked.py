"""Models that mask padding train, whatever says where it is; each as the loader pads, and as a loop pads by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

import plrvo
from plrvo.training import PrivacyEngine
from plrvo.validate import InvalidArgument

CLASSES, WORDS, STEPS = 2, 50, 6
Rows = list[Any]


class Examples(torch.utils.data.Dataset[Any]):
    def __init__(self, items: Rows) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i], i % CLASSES


def lengths_of(count: int, low: int, high: int) -> list[int]:
    return torch.randint(low, high, (count,), generator=torch.Generator().manual_seed(low)).tolist()


def series(low: int = 8, high: int = 40, silent: bool = False) -> Rows:
    generator = torch.Generator().manual_seed(1)
    found = [torch.randn(n, 4, generator=generator) + i % 2 for i, n in enumerate(lengths_of(48, low, high))]
    for i, t in enumerate(found if silent else ()):
        t[len(t) - i % 7 :] = 0
    return found


def texts(second: str = "") -> Rows:
    """With segments 0 and 1, or an age for each token, of which each has two."""
    generator, found = torch.Generator().manual_seed(1), []
    for i, n in enumerate(lengths_of(48, 10, 40)):
        ids = torch.randint(5, WORDS, (n,), generator=generator)
        kinds = (torch.arange(n) >= 3 + i % 5).long() + (40 + i % 9 if second == "ages" else 0)
        found.append((ids, kinds) if second else ids)
    return found


def stacked(rows: Rows, value: float = 0, left: bool = False) -> Tensor:
    if not rows:
        return torch.zeros(0, 1)
    return pad_sequence(rows, batch_first=True, padding_value=value, padding_side="left" if left else "right")


def is_real(rows: Rows, left: bool = False) -> Tensor:
    return stacked([torch.ones(len(t), dtype=torch.bool) for t in rows], 0, left)


def counts(rows: Rows) -> Tensor:
    return torch.tensor([len(t) for t in rows])


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    mask = mask.float()[..., None]
    return (x * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


class Pooled(nn.Module):
    """A masked mean of real inputs."""

    def __init__(self, masked: Callable[[Tensor, Any], Tensor] = lambda x, mask: mask) -> None:
        super().__init__()
        self.masked, self.one, self.head = masked, nn.Linear(4, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, mask: Any) -> Tensor:
        return self.head(_mean(self.one(x).tanh(), self.masked(x, mask)))  # type: ignore[no-any-return]


def _by_lengths(x: Tensor, lengths: Any) -> Tensor:
    return torch.arange(x.shape[1])[None] < torch.as_tensor(lengths)[:, None]


class Attending(nn.Module):
    """Attention with torch's `key_padding_mask`, True where there is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(4, 8) for _ in range(3))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        scores = (self.query(x) @ self.key(x).transpose(1, 2)).masked_fill(pad[:, None], -1e9)
        return self.head(_mean(scores.softmax(dim=2) @ self.value(x), ~pad))  # type: ignore[no-any-return]


class Kinds(nn.Module):
    """Words, and a kind for each, of which only what is no padding counts."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(WORDS, 8), nn.Embedding(60, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        return self.head(_mean((self.words(ids) + self.kinds(kinds)).tanh(), ids != 0))  # type: ignore[no-any-return]


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0])  # type: ignore[no-any-return]


class Convolved(nn.Module):
    """What is padding is zero before each convolution, and not in the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(4, 8, 3, padding=1), nn.Conv1d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        there = mask[:, None].float()
        found = self.two(self.one(x.transpose(1, 2)).tanh() * there)
        return self.head(_mean(found.transpose(1, 2), mask))  # type: ignore[no-any-return]


class Plain(nn.Module):
    """Without a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.Linear(4, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.one(x).tanh().mean(dim=1))  # type: ignore[no-any-return]


def _floor(rows: Rows, value: float) -> Tensor:
    return stacked(rows, value) if rows else torch.zeros(0, 1, 4)


def _real(rows: Rows) -> Tensor:
    return _floor(rows, 0.0)


def _to(rows: Rows, length: int) -> Tensor:
    return nn.functional.pad(_real(rows), (0, 0, 0, length - _real(rows).shape[1]))


def _kinds(rows: Rows, value: int) -> tuple[Tensor, Tensor]:
    if not rows:
        return torch.zeros(0, 1).long(), torch.zeros(0, 1).long()
    return stacked([ids for ids, _ in rows]), stacked([kinds for _, kinds in rows], value)


def _of_lists(x: Tensor, mask: Any) -> Tensor:
    return torch.as_tensor(mask).reshape(len(x), -1)


def _sorted(rows: Rows) -> tuple[Tensor, Tensor]:
    """Labels are those of other rows then, which does not matter here."""
    rows = sorted(rows, key=len, reverse=True)
    return _real(rows), counts(rows)


class Noisy:
    """A series that is another one each time; lists of a loop hold it as it is."""

    def __init__(self, of: Tensor) -> None:
        self.of = of

    def __len__(self) -> int:
        return len(self.of)

    def tolist(self) -> Any:
        return self.of.tolist()


def _drawn(rows: Rows) -> Rows:
    return [t.of + torch.randn(t.of.shape) / 10 if isinstance(t, Noisy) else t for t in rows]


Case = tuple[Callable[[], nn.Module], Callable[[], Rows], Callable[[Rows], Any]]
MASKS: dict[str, tuple[Callable[[Rows], Any], Callable[[Tensor, Any], Tensor]]] = {
    "floats": (lambda rows: is_real(rows).float(), lambda x, mask: mask),
    "truths": (is_real, lambda x, mask: mask),
    "integers": (lambda rows: is_real(rows).long(), lambda x, mask: mask),
    "padding is true": (lambda rows: ~is_real(rows).bool(), lambda x, mask: ~mask),
    "padding is one": (lambda rows: 1 - is_real(rows).float(), lambda x, mask: 1 - mask),
    "lengths": (counts, _by_lengths),
    "lengths in a list": (lambda rows: [len(t) for t in rows], _by_lengths),
}
CASES: dict[str, Case] = {
    f"mean, {name}, {low} to {high}": (
        lambda masked=masked: Pooled(masked),  # type: ignore[misc]
        lambda low=low, high=high: series(low, high),  # type: ignore[misc]
        lambda rows, made=made: (_real(rows), made(rows)),  # type: ignore[misc]
    )
    for name, (made, masked) in MASKS.items()
    for low, high in ((4, 40), (20, 40), (30, 120))
}
CASES |= {
    "padded by -80 dB": (lambda: Pooled(), series, lambda rows: (_floor(rows, -80.0), is_real(rows))),
    "attention": (Attending, series, lambda rows: (_real(rows), ~is_real(rows).bool())),
    "packed": (Packed, series, lambda rows: (_real(rows), counts(rows))),
    "convolution": (Convolved, series, lambda rows: (_real(rows), is_real(rows))),
    "silence, lengths": (lambda: Pooled(_by_lengths), lambda: series(20, 60, True), lambda r: (_real(r), counts(r))),
    "silence, mask": (lambda: Pooled(), lambda: series(20, 60, True), lambda rows: (_real(rows), is_real(rows))),
    "segments padded by 2": (Kinds, lambda: texts("segments"), lambda rows: _kinds(rows, 2)),
    "segments padded by 0": (Kinds, lambda: texts("segments"), lambda rows: _kinds(rows, 0)),
    "lists of lists": (lambda: Pooled(_of_lists), series, lambda rows: (_real(rows), is_real(rows).tolist())),
    "the longest first": (Packed, series, lambda rows: _sorted(rows)),
    "noise": (
        lambda: Pooled(),
        lambda: [Noisy(t) for t in series()],
        lambda rows: (_real(_drawn(rows)), is_real(rows)),
    ),
    "ages": (Kinds, lambda: texts("ages"), lambda rows: _kinds(rows, 0)),
}


def train(case: Case, *, in_the_loop: bool = False, rate: float = 0.3, **how: Any) -> int:
    """The steps that were taken."""
    make, items, padded = case
    torch.manual_seed(0)
    module = make()
    work = plrvo.Workload(rate, STEPS, 1.0, sum(p.numel() for p in module.parameters() if p.requires_grad))
    engine = PrivacyEngine(plrvo.Plan.certify(plrvo.Gaussian(5.0), work, 1e-3))

    def collate(rows: Rows) -> Any:
        given, labels = [t for t, _ in rows], torch.tensor([label for _, label in rows])
        return (_flat(given) if in_the_loop else padded(given)), labels

    module, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(Examples(items()), collate_fn=collate, **how),
        grad_sample_mode="hooks",
        sample_generator=torch.Generator().manual_seed(1),
        noise_generator=torch.Generator().manual_seed(1),
        steps_per_epoch=STEPS,
    )
    for given, labels in loader:
        optimizer.zero_grad()
        inputs = padded(_back(given)) if in_the_loop else given
        out = (
            module(**inputs) if isinstance(inputs, dict) else module(*inputs if isinstance(inputs, tuple) else [inputs])
        )
        nn.functional.cross_entropy(getattr(out, "logits", out), labels).backward()
        optimizer.step()
    return int(optimizer.steps_taken)


def _flat(rows: Rows) -> Any:
    """Of which a loop has to make batches by itself: no tensor has the length of a row."""
    return [[t.tolist() for t in row] if isinstance(row, tuple) else row.tolist() for row in rows]


def _back(rows: Any) -> Rows:
    is_pair = [len(row) == 2 and isinstance(row[0], list) and len(row[0]) > 4 for row in rows]
    return [tuple(map(torch.tensor, row)) if two else torch.tensor(row) for row, two in zip(rows, is_pair, strict=True)]


@pytest.mark.parametrize("in_the_loop", [False, True], ids=["loader", "loop"])
@pytest.mark.parametrize("case", CASES)
def test_models_that_mask(case: str, in_the_loop: bool) -> None:
    assert train(CASES[case], in_the_loop=in_the_loop) == STEPS


def test_data_that_are_padded_to_a_constant_need_no_mask() -> None:
    assert train((Plain, series, lambda rows: _to(rows, 48))) == STEPS
    assert train((Plain, lambda: list(_to(series(), 48)), _real)) == STEPS


@pytest.mark.parametrize(("name", "left"), [("bert", False), ("gpt2", False), ("gpt2", True)])  # BERT reads the first
@pytest.mark.parametrize("in_the_loop", [False, True], ids=["loader", "loop"])
def test_transformers_with_their_masks(name: str, left: bool, in_the_loop: bool) -> None:
    transformers = pytest.importorskip("transformers")

    def make() -> nn.Module:
        if name == "bert":
            config = transformers.BertConfig(
                vocab_size=WORDS, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
            )
            model = transformers.BertForSequenceClassification(config)
        else:
            config = transformers.GPT2Config(vocab_size=WORDS, n_embd=8, n_layer=1, n_head=2, pad_token_id=0)
            model = transformers.GPT2ForSequenceClassification(config)
        for key, p in model.named_parameters():
            p.requires_grad_(key.startswith(("classifier", "score")))
        return model.train()  # type: ignore[no-any-return]

    def padded(rows: Rows) -> dict[str, Tensor]:
        rows = rows or [torch.zeros(1).long()]
        mask = is_real(rows, left).long()
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        return {"input_ids": stacked(rows, 0, left), "attention_mask": mask, "position_ids": positions}

    assert train((make, texts, padded), in_the_loop=in_the_loop, rate=0.4) == STEPS


def test_workers_are_asked_too() -> None:
    assert train((lambda: Pooled(), series, lambda rows: (_real(rows), is_real(rows))), num_workers=1) == STEPS


def test_workers_tell_of_models_without_a_mask() -> None:
    with pytest.raises(InvalidArgument, match="mask the padding"):
        train((Plain, series, _real), num_workers=1)


class Speaker(nn.Module):
    """Says the next word; each position sees those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(WORDS, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.rnn(self.words(ids))[0])  # type: ignore[no-any-return]


def test_a_loop_that_shifts_words_and_leaves_padding_out_of_its_loss() -> None:
    torch.manual_seed(0)
    module: Any = Speaker()
    work = plrvo.Workload(0.3, STEPS, 1.0, sum(p.numel() for p in module.parameters()))
    module, optimizer, loader = PrivacyEngine(plrvo.Plan.certify(plrvo.Gaussian(5.0), work, 1e-3)).make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(Examples(texts()), collate_fn=lambda rows: stacked([t for t, _ in rows])),
        grad_sample_mode="functorch",
        sample_generator=torch.Generator().manual_seed(1),
        noise_generator=torch.Generator().manual_seed(1),
        steps_per_epoch=STEPS,
    )
    for ids in loader:
        optimizer.zero_grad()
        labels = ids[:, 1:].masked_fill(ids[:, 1:] == 0, -100)
        each = nn.functional.cross_entropy(module(ids[:, :-1]).transpose(1, 2), labels, reduction="none")
        (each.sum(dim=1) / (labels >= 0).sum(dim=1)).mean().backward()
        optimizer.step()
    assert optimizer.steps_taken == STEPS
