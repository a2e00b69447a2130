from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks.tables.tiny import ENTRIES, tiny_language

from plrvo.tasks.tables.sequences import (
    IGNORED,
    SequenceLoss,
    SequenceModel,
    Sequences,
    cut,
    left_padded,
    longest_sequence,
    prompts,
)
from plrvo.validate import InvalidArgument

PAIRS = [(entry.table, text) for entry in ENTRIES for text in entry.references]


@given(st.integers(0, 300), st.integers(1, 300), st.integers(8, 200))
def test_what_is_cut_fits_and_nothing_is_cut_for_nothing(table, text, limit):
    of_table, of_text = cut(table, text, limit)
    assert of_table + of_text + 2 <= limit
    assert 0 <= of_table <= table
    assert 1 <= of_text <= text
    if table + text + 2 <= limit:
        assert (of_table, of_text) == (table, text)
    else:
        assert of_table + of_text + 2 == limit
        assert of_text == text or of_table <= limit // 2


def test_a_sequence_is_table_begin_text_end():
    language = tiny_language("llama")
    data = Sequences(PAIRS, language, max_length=60)
    table, text = PAIRS[0]
    assert language.tokenizer.decode(data.contexts[0][:-1]) == table
    assert language.tokenizer.decode(data.targets[0][:-1]) == text
    assert (data.contexts[0][-1], data.targets[0][-1]) == (language.begin, language.end)
    assert data.truncated == 0
    assert data.lengths.tolist() == [len(c) + len(t) for c, t in zip(data.contexts, data.targets, strict=True)]


def test_a_prefix_comes_before_everything_and_counts():
    language = replace(tiny_language("llama"), prefix=(1,))
    data = Sequences(PAIRS, language, max_length=12)
    assert all(context[0] == 1 for context in data.contexts)
    assert max(data.lengths) == 12
    assert [len(context) for context in prompts(["pub " * 50], language, 12)] == [11]


def test_the_end_of_a_text_that_was_cut_is_not_taught():
    language = tiny_language("llama")
    whole, short = (Sequences(PAIRS, language, length) for length in (60, 8))
    assert short.truncated == len(PAIRS) - sum(length <= 8 for length in whole.lengths.tolist())
    assert short.truncated > 3
    for target, cut_target in zip(whole.targets, short.targets, strict=True):
        assert torch.equal(cut_target, target[: len(cut_target)])
    assert max(short.lengths) == 8


def test_no_sequence_is_longer_than_the_model_takes():
    language = tiny_language("gpt2")  # its context is 64 tokens
    assert longest_sequence(language, 1000) == 64
    data = Sequences([("pub | " * 100, "food " * 100)], language, 1000)
    assert data.truncated == 1
    assert SequenceModel(language.model)(**data.__getitems__([0])[0]).isfinite().all()
    with pytest.raises(InvalidArgument, match="max_length"):
        Sequences(PAIRS, language, 7)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_an_example_has_the_same_loss_in_any_company(kind):
    language = tiny_language(kind)
    data, module = Sequences(PAIRS, language, 60), SequenceModel(language.model)

    def losses(indices):
        inputs, labels = data.__getitems__(indices)
        return SequenceLoss("none")(module(**inputs), labels).detach()

    together = losses(list(range(len(data))))
    assert together.isfinite().all()
    for i in range(len(data)):
        assert float(losses([i])) == pytest.approx(float(together[i]), abs=1e-5)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_loss_is_the_models_own(kind):
    """Against the whole sequence without padding, and cross entropy written out."""
    language = tiny_language(kind)
    data, module = Sequences(PAIRS, language, 60), SequenceModel(language.model)
    inputs, labels = data.__getitems__([2, 5])
    found = SequenceLoss("none")(module(**inputs), labels).detach()
    for i, value in zip([2, 5], found, strict=True):
        context, target = data.contexts[i], data.targets[i]
        logits = language.model(torch.cat([context, target])[None]).logits[0].detach()
        chances = logits.log_softmax(dim=-1)[len(context) - 1 : -1]
        assert float(value) == pytest.approx(-float(chances[range(len(target)), target].mean()), abs=1e-5)


def test_reductions_agree():
    language = tiny_language("llama")
    data, module = Sequences(PAIRS, language, 60), SequenceModel(language.model)
    inputs, labels = data.__getitems__([0, 1, 2])
    logits = module(**inputs).detach()
    each = SequenceLoss("none")(logits, labels)
    assert float(SequenceLoss("sum")(logits, labels)) == pytest.approx(float(each.sum()))
    assert float(SequenceLoss()(logits, labels)) == pytest.approx(float(each.mean()))


def test_padding_is_on_the_outside():
    padded = left_padded([torch.tensor([5, 6, 7]), torch.tensor([8])], pad=2)
    assert padded.ids.tolist() == [[5, 6, 7], [2, 2, 8]]
    assert padded.mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    data = Sequences(PAIRS, tiny_language("llama"), 60)
    inputs, labels = data.__getitems__([0, 7])
    assert (labels[1] == IGNORED).any()
    assert inputs["context"][:, -1].tolist() == [1, 1]
    assert inputs["text"].shape[1] == labels.shape[1] - 1


def test_an_empty_batch_has_the_form_of_a_full_one():
    data = Sequences(PAIRS, tiny_language("llama"), 60)
    inputs, labels = data.__getitems__([])
    assert len(labels) == 0
    assert {name: (len(t), t.ndim) for name, t in inputs.items()} == dict.fromkeys(inputs, (0, 2))


def test_prompts_are_the_contexts_of_training():
    language = tiny_language("llama")
    data = Sequences(PAIRS, language, 60)
    asked = prompts([table for table, _ in PAIRS], language, 60)
    assert all(torch.equal(a, b) for a, b in zip(asked, data.contexts, strict=True))
    assert len(prompts(["pub " * 500], language, 1000)[0]) == 63
