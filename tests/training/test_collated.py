"""Batches of one length: made so by their longest example, or by whoever made the data."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.training.test_padding import CLASSES, WORDS, Mean, Recurrent
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from plrvo.training import PrivacyEngine
from plrvo.training.call import Call
from plrvo.training.collated import Collated
from plrvo.training.draws import Draws
from plrvo.training.padding import Padding
from plrvo.validate import InvalidArgument

COUNT, SHORT, LONG = 12, 5, 9


class Texts(torch.utils.data.Dataset[Any]):
    """All of one length but for the last, and each with its class."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        lengths = [SHORT] * (COUNT - 1) + [LONG]
        self.texts = [torch.randint(1, WORDS, (n,), generator=generator) for n in lengths]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.texts[i], i % CLASSES


def to_the_longest(rows: list[Any]) -> tuple[Tensor, Tensor]:
    return pad_sequence([text for text, _ in rows], batch_first=True), torch.tensor([label for _, label in rows])


def to_one_length(rows: list[Any]) -> tuple[Tensor, Tensor]:
    ids, labels = to_the_longest(rows)
    return torch.nn.functional.pad(ids, (0, LONG - ids.shape[1])), labels


def left_as_they_are(rows: list[Any]) -> tuple[list[list[int]], Tensor]:
    """For a loop that pads by itself: no tensor has the texts' length."""
    return [text.tolist() for text, _ in rows], torch.tensor([label for _, label in rows])


def run(
    module: Any, collate: Any, *, rate: float = 1.0, steps: int = 3, dataset: Any = None, mode: str = "hooks"
) -> int:
    """The steps that were taken of so many."""
    work = plrvo.Workload(rate, steps, 1.0, sum(p.numel() for p in module.parameters()))
    engine = PrivacyEngine(plrvo.Plan.certify(plrvo.Gaussian(5.0), work, 1e-3))
    module, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(dataset or Texts(), collate_fn=collate),
        grad_sample_mode=mode,
        sample_generator=torch.Generator().manual_seed(1),
        noise_generator=torch.Generator().manual_seed(1),
        steps_per_epoch=steps,
    )
    try:
        for ids, labels in loader:
            optimizer.zero_grad()
            x = ids if isinstance(ids, Tensor) else pad_sequence([*map(torch.tensor, ids)], batch_first=True)
            torch.nn.functional.cross_entropy(module(x), labels).backward()
            optimizer.step()
    except InvalidArgument as error:
        assert "mask the padding" in str(error)  # noqa: PT017
    return optimizer.steps_taken


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks", "functorch"])
def test_whole_batches_padded_to_their_longest_need_a_mask_from_the_first_step_on(mode: str) -> None:
    """Their length never changes, and is that of the longest example in each step."""
    torch.manual_seed(0)
    assert run(Mean(masks=False), to_the_longest, mode=mode) == 0
    assert run(Mean(masks=True), to_the_longest, mode=mode) == 3


def test_a_first_batch_is_refused_before_its_step() -> None:
    """At a rate of .99, with this seed, it has the long text (else it would have no padding, and be released)."""
    torch.manual_seed(0)
    assert run(Recurrent(masks=False), to_the_longest, rate=0.99) == 0
    assert run(Recurrent(masks=True), to_the_longest, rate=0.99) == 3


def test_data_of_one_length_needs_no_mask() -> None:
    torch.manual_seed(0)
    assert run(Mean(masks=False), to_one_length) == 3
    whole = TensorDataset(*to_the_longest([Texts()[i] for i in range(COUNT)]))
    assert run(Mean(masks=False), None, dataset=whole) == 3


@pytest.mark.parametrize("rate", [1.0, 0.99])
def test_batches_that_a_loop_pads_need_a_mask(rate: float) -> None:
    torch.manual_seed(0)
    assert run(Mean(masks=False), left_as_they_are, rate=rate) == 0
    assert run(Mean(masks=True), left_as_they_are, rate=rate) == 3


def sorted_by_length(rows: list[Any]) -> tuple[Tensor, Tensor]:
    return to_the_longest(sorted(rows, key=lambda row: -len(row[0])))


def test_another_order_of_rows_hides_no_padding() -> None:
    torch.manual_seed(0)
    assert run(Mean(masks=False), sorted_by_length) == 0


def test_inputs_of_no_size_are_no_texts() -> None:
    class Both(Mean):
        def forward(self, ids: Tensor, none: Tensor) -> Tensor:
            return super().forward(ids) + none.sum()

    module = Both(masks=True)
    padding = Padding(lambda _: None)
    padding.collated = Collated(DataLoader(Texts()), Draws())
    ids = pad_sequence(Texts().texts, batch_first=True)
    padding.check(module, Call((ids,), {"none": torch.zeros(COUNT, 0, 4)}, COUNT))


class WithAnEmptyOne(Texts):
    def __init__(self) -> None:
        super().__init__()
        self.texts[3] = self.texts[3][:0]


def test_an_empty_text_hides_no_padding() -> None:
    torch.manual_seed(0)
    assert run(Mean(masks=False), to_the_longest, dataset=WithAnEmptyOne()) == 0


class SoFar:
    """Pads to the longest that it has seen, whatever batch that was in."""

    def __init__(self) -> None:
        self.longest = 0

    def __call__(self, rows: list[Any]) -> tuple[Tensor, Tensor]:
        ids, labels = to_the_longest(rows)
        self.longest = max(self.longest, ids.shape[1])
        return torch.nn.functional.pad(ids, (0, self.longest - ids.shape[1])), labels


def so_far_in_a_closure() -> Any:
    return lambda rows, pads=SoFar(): pads(rows)  # noqa: B008 - it is made once


@pytest.mark.parametrize("make", [SoFar, so_far_in_a_closure])
def test_the_longest_of_all_batches_so_far_is_no_constant(make: Any) -> None:
    """Every example is of that length, also alone: what tells is one that is longer still."""
    torch.manual_seed(0)
    assert run(Mean(masks=False), make()) == 0
    assert run(Mean(masks=True), make()) == 3


class Spectra(Texts):
    """Real numbers in three bands."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = [torch.randn(len(t), 3, generator=torch.Generator().manual_seed(len(t))) for t in self.texts]


class Bands(torch.nn.Module):
    def __init__(self, masks: bool) -> None:
        super().__init__()
        self.masks, self.one, self.head = masks, torch.nn.Linear(3, 4), torch.nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        mask = (x != -80).any(dim=2, keepdim=True) if self.masks else torch.ones_like(x[:, :, :1])
        return self.head((self.one(x).tanh() * mask).sum(dim=1) / mask.sum(dim=1))


@pytest.mark.parametrize("length", [None, LONG + 2])
@pytest.mark.parametrize("masks", [False, True])
def test_spectra_are_padded_by_their_floor(masks: bool, length: int | None) -> None:
    """To the longest of a batch they need a mask, and to a constant of the collate function they do not."""

    def collate(rows: list[Any]) -> tuple[Tensor, Tensor]:
        x = pad_sequence([t for t, _ in rows], batch_first=True, padding_value=-80.0)
        if length is not None:
            x = torch.nn.functional.pad(x, (0, 0, 0, length - x.shape[1]), value=-80.0)
        return x, torch.tensor([label for _, label in rows])

    torch.manual_seed(0)
    assert run(Bands(masks), collate, dataset=Spectra()) == (3 if masks or length else 0)


def test_spectra_that_the_data_set_pads_need_no_mask() -> None:
    torch.manual_seed(0)
    x = pad_sequence(Spectra().texts, batch_first=True, padding_value=-80.0)
    assert run(Bands(masks=False), None, dataset=TensorDataset(x, torch.arange(COUNT) % CLASSES)) == 3


def asked(collate: Any, *, length: int = LONG, rows: int = COUNT, dataset: Any = None) -> bool:
    draws = Draws()
    draws.drawn(range(COUNT))
    loader = DataLoader(dataset or Texts(), collate_fn=collate)
    return Collated(loader, draws).follows(0, COUNT - 1, rows, length)


def test_a_short_example_beside_a_long_one_tells() -> None:
    assert asked(to_the_longest)
    assert not asked(to_one_length)


def by_name(rows: list[Any]) -> dict[str, Tensor]:
    """As collate functions for transformers do, of words and masks in lists."""
    longest = max(len(row["ids"]) for row in rows)
    by_name.longest = longest = max(longest, getattr(by_name, "longest", 0))  # type: ignore[attr-defined]
    return {
        name: torch.tensor([row[name] + [0] * (longest - len(row[name])) for row in rows]) for name in ("ids", "mask")
    }


class Named(Texts):
    def __getitem__(self, i: int) -> Any:
        return {"ids": self.texts[i].tolist(), "mask": [1] * len(self.texts[i]), "name": f"text {i}"}


class Written(Texts):
    """A letter for each number."""

    def __getitem__(self, i: int) -> Any:
        return "".join(chr(97 + n) for n in self.texts[i]), i % CLASSES


def letters(rows: list[Any], most: int | None = None) -> tuple[Tensor, Tensor]:
    """With the longest of all so far, or cut to a constant and padded to it."""
    ids, labels = to_the_longest([(torch.tensor([ord(c) - 96 for c in text]), label) for text, label in rows])
    if most is None:
        most = letters.longest = max(ids.shape[1], getattr(letters, "longest", 0))  # type: ignore[attr-defined]
    return torch.nn.functional.pad(ids, (0, most - ids.shape[1])), labels


def in_eights(rows: list[Any]) -> tuple[Tensor, Tensor]:
    ids, labels = to_the_longest(rows)
    return torch.nn.functional.pad(ids, (0, -ids.shape[1] % 16)), labels


def to_a_constant_or_nothing(rows: list[Any]) -> tuple[Tensor, Tensor]:
    ids = torch.zeros(len(rows), LONG, dtype=torch.long)
    for i, (text, _) in enumerate(rows):
        ids[i, : len(text)] = text
    return ids, torch.tensor([label for _, label in rows])


def test_a_longer_example_tells_a_constant_from_what_was_the_longest_so_far() -> None:
    """Of texts as tensors, lists and letters; and multiples, which the longest of the batch decides about as well."""
    for collate, dataset in ((by_name, Named()), (letters, Written()), (SoFar(), Texts())):
        collate([dataset[COUNT - 1]])
        assert asked(collate, dataset=dataset)
    assert asked(in_eights, length=16)
    assert not asked(to_a_constant_or_nothing)
    assert not asked(lambda rows: letters(rows, LONG), dataset=Written())


def test_what_the_loader_does_not_show_is_taken_to_follow() -> None:
    assert asked(left_as_they_are)
    assert asked(to_the_longest, length=LONG + 7)  # made by the loop
    assert asked(to_one_length, rows=COUNT + 1)  # rows that the batch does not have

    class Once(Texts):
        def __getitem__(self, i: int) -> tuple[Tensor, int]:
            raise RuntimeError("each example may be read once")

    assert asked(to_one_length, dataset=Once())


def test_to_ask_leaves_generators_alone() -> None:
    class Drawn(Texts):
        def __getitem__(self, i: int) -> tuple[Tensor, int]:
            torch.rand(3)
            return super().__getitem__(i)

    class Augmented(Texts):
        generator = np.random.default_rng(0)

        def __getitem__(self, i: int) -> tuple[Tensor, int]:
            return self.texts[i] + int(self.generator.integers(2)), i % CLASSES

    own = Augmented()
    first = own.generator.bit_generator.state
    assert asked(to_the_longest, dataset=own)
    assert own.generator.bit_generator.state == first
    before = torch.get_rng_state()
    assert asked(to_the_longest, dataset=Drawn())
    assert torch.equal(torch.get_rng_state(), before)


def test_two_runs_of_one_seed_ask_at_the_same_steps() -> None:
    """A data set may count what it is asked for. By chance, two of them agree in less than one of fifty."""
    whole = to_one_length([Texts()[i] for i in range(COUNT)])[0]

    class Noted(Collated):
        def follows(self, *_: Any) -> bool:
            asked_at[-1].append(steps[-1])
            return False

    asked_at: list[list[int]] = []
    steps: list[int] = []
    for _ in range(2):
        padding = Padding(lambda _: None)
        padding.collated = Noted(DataLoader(Texts()), Draws())
        asked_at.append([])
        steps = []
        for step in range(1000):
            steps.append(step)
            padding.check(Mean(masks=True), Call((whole,), {}, COUNT))
    assert asked_at[0] == asked_at[1]
    later = [b - a for a, b in zip(asked_at[0][8:-1], asked_at[0][9:], strict=True)]
    assert 4 < len(later) < 40
    assert len(set(later)) > 3  # no period that lengths could keep time with


def given(collate: Any, whole: Any, *, wanted: Any = (), dataset: Any = None) -> Any:
    """Of a batch of all texts, of which a module is given this."""
    draws = Draws()
    draws.drawn(range(COUNT))
    loader = DataLoader(dataset or Texts(), collate_fn=collate)
    return Collated(loader, draws).given(Call((whole,), {}, COUNT), wanted)


def whole_batch(collate: Any, dataset: Any = None) -> Any:
    return collate([(dataset or Texts())[i] for i in range(COUNT)])[0]


def test_single_examples_take_the_places_of_rows() -> None:
    """The longest one, the last, is not asked for at first: without it a batch is shorter."""
    found = given(to_the_longest, whole_batch(to_the_longest))
    assert found.lengths == {LONG}
    assert set(found.alone) <= set(range(COUNT - 1))
    row, call = next(iter(found.alone.items()))
    assert torch.equal(call.args[0], Texts().texts[row][None])
    assert given(to_one_length, whole_batch(to_one_length)).alone == {}


def test_rows_that_were_sorted_are_told_apart() -> None:
    found = given(sorted_by_length, whole_batch(sorted_by_length))
    assert found.lengths == {LONG}
    order = sorted(range(COUNT), key=lambda i: -len(Texts().texts[i]))
    assert all(torch.equal(call.args[0][0], Texts().texts[order[row]]) for row, call in found.alone.items())


def test_numbers_that_come_from_others_differ() -> None:
    def centred(rows: list[Any]) -> tuple[Tensor]:
        x = to_one_length(rows)[0].double()
        return (x - x.mean(dim=0),)

    found = given(centred, whole_batch(centred))
    assert found.lengths == set()
    assert found.alone


def test_nothing_is_told_of_what_is_drawn_anew_or_what_a_loop_has_made() -> None:
    class Drawn(Texts):
        def __getitem__(self, i: int) -> tuple[Tensor, int]:
            return self.texts[i] + torch.randint(0, 5, self.texts[i].shape), i % CLASSES

    assert given(to_the_longest, whole_batch(to_the_longest, Drawn()), dataset=Drawn()) is None
    assert given(to_the_longest, whole_batch(to_the_longest) / 7) is None
    assert given(None, torch.zeros(COUNT, LONG)) is None  # torch's own function makes no example longer
