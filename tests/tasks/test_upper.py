"""Lower layers and upper ones, one after the other, against the whole model."""

import pytest
import torch
from tests.tasks.tables.tiny import ENTRIES, tiny_language, tiny_model
from tests.tasks.text.tiny import batch, bert

from plrvo.tasks.tables.sequences import SequenceModel, Sequences, joined, tokens_of
from plrvo.tasks.text.task import UpperLayers
from plrvo.tasks.text.trainable import choose
from plrvo.tasks.upper import LowerStates, lower_part, upper_part
from plrvo.training.descendants import Descendants
from plrvo.validate import InvalidArgument

PAIRS = [(entry.table, text) for entry in ENTRIES for text in entry.references]


def llama_parts(trainable="all"):
    """A whole language model, its data, and the upper layer with the states that it is trained on."""
    language = tiny_language("llama")
    choose(language.model, trainable, torch.Generator().manual_seed(1), layers=1)
    data = Sequences(PAIRS, language, 60)
    lower = lower_part(language.model, 1)
    states = LowerStates(data, lambda inputs: lower(**joined(**inputs), use_cache=False).last_hidden_state, tokens_of)
    return language, data, SequenceModel(upper_part(language.model, 1)), states


@pytest.mark.parametrize("pooling", ["mean", "its own"])
def test_a_classifier_in_two_parts_gives_its_own_logits(pooling):
    model, (inputs, _) = bert("head", pooling), batch()
    upper, lower = UpperLayers(model, 1), lower_part(model, 1)
    with torch.no_grad():
        states = lower(**inputs).last_hidden_state
        parted = upper(states=states, **inputs).logits
        assert torch.allclose(parted, model(**inputs).logits, atol=1e-6)
        assert not torch.allclose(parted, upper(states=states.flip(1), **inputs).logits, atol=1e-3)


@pytest.mark.parametrize("indices", [[0, 3, 5, 1], [6], [2, 2]])
def test_a_language_model_in_two_parts_gives_its_own_logits(indices):
    language, data, upper, states = llama_parts()
    whole = SequenceModel(language.model)
    (inputs, labels), (mine, targets) = data.__getitems__(indices), states.__getitems__(indices)
    assert torch.equal(labels, targets)
    with torch.no_grad():
        expected, found = whole(**inputs), upper(**mine)
    counted = labels != -100
    # States are kept in half precision: eleven bits of logits of about this size.
    assert torch.allclose(found[counted], expected[counted], atol=2**-8 * float(expected.abs().max()))


def test_a_lower_part_in_bfloat16_is_a_copy_that_gives_the_same_up_to_its_rounding():
    language = tiny_language("llama")
    single, half = lower_part(language.model, 1), lower_part(language.model, 1, bf16=True)
    inputs = joined(**Sequences(PAIRS, language, 60).__getitems__([0])[0])
    with torch.no_grad():
        expected, found = (part(**inputs, use_cache=False).last_hidden_state for part in (single, half))
    assert found.dtype == torch.bfloat16
    assert 0 < (found.float() - expected).norm() < 2**-6 * expected.norm()  # a few roundings to eight bits
    assert {p.dtype for p in language.model.parameters()} == {torch.float32}


def test_states_of_an_example_do_not_depend_on_when_it_was_asked_for():
    _, _, _, first = llama_parts()
    _, _, _, second = llama_parts()
    for i in range(len(first)):  # each by itself, and then beside longer and shorter ones
        first.__getitems__([i])
    together, alone = (states.__getitems__(list(range(len(PAIRS)))) for states in (first, second))
    assert torch.allclose(together[0]["states"], alone[0]["states"], atol=1e-3)
    empty, labels = first.__getitems__([])
    assert {len(column) for column in (*empty.values(), labels)} == {0}
    one, label = first[4]
    assert torch.equal(label, first.__getitems__([4])[1][0])
    assert torch.equal(one["states"], first.__getitems__([4])[0]["states"][0])


@pytest.mark.parametrize("trainable", ["all", "lora"])
def test_what_is_trained_lies_in_the_last_layer_and_is_the_models_own(trainable):
    language, _, upper, _ = llama_parts(trainable)
    trained = {name: p for name, p in upper.lm.named_parameters() if p.requires_grad}
    assert trained
    assert all(name.startswith("model.layers.1.") for name in trained)
    own = dict(language.model.named_parameters())
    assert all(own[name] is parameter for name, parameter in trained.items())
    assert {name for name, p in own.items() if p.requires_grad} == set(trained)


def test_what_has_no_such_layers_is_refused():
    model = bert("head")
    for count in (0, 2):
        with pytest.raises(InvalidArgument, match="layers"):
            upper_part(model, count)
    with pytest.raises(InvalidArgument, match="GPT2Model"):
        lower_part(tiny_model("gpt2"), 1)
    with pytest.raises(InvalidArgument, match="trainable"):
        choose(model, "head", torch.Generator(), layers=1)


def test_what_it_takes_to_make_states_is_not_followed_and_what_follows_is():
    """Every operation of the layers beneath would be looked at."""
    *_, states = llama_parts()
    following, heard = Descendants(), []
    kept = torch.ones(3)
    following.add([kept])
    following.resume()
    compute = states._compute

    def listening(inputs):
        heard.append(following.is_running)
        return compute(inputs)

    states._compute = listening
    try:
        states.__getitems__([0, 1])
        assert heard == [False, False]
        assert following.is_running
        assert following.is_one(kept + 1)
    finally:
        following.forget()
