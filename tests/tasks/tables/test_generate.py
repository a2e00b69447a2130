import json

import pytest
import torch
from tests.tasks.tables.tiny import ENTRIES, tiny_language

from plrvo.tasks.catalog import Request
from plrvo.tasks.tables.generate import Decoding, generate, read_generations, write_generations
from plrvo.tasks.tables.sequences import SequenceLoss, SequenceModel, Sequences, prompts
from plrvo.tasks.tables.words import decoding_of
from plrvo.validate import InvalidArgument

TABLES = [entry.table for entry in ENTRIES]
GREEDY, BEAMS, SAMPLED = Decoding(beams=1, longest=12), Decoding(beams=3, longest=12), Decoding(1, 0.9, 12)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def learned():
    """A tiny model that has learned one text for each table."""
    language = tiny_language("llama", seed=1)
    data = Sequences([(entry.table, entry.references[0]) for entry in ENTRIES], language, 60)
    module = SequenceModel(language.model)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    inputs, labels = data.__getitems__(list(range(len(data))))
    for _ in range(120):
        optimizer.zero_grad()
        SequenceLoss()(module(**inputs), labels).backward()
        optimizer.step()
    return language


def test_texts_are_written_greedily_unless_beams_are_asked_for():
    assert Decoding().options["num_beams"] == 1
    assert [decoding_of(Request("e2e", options=asked)) for asked in ({}, {"beams": 4}, {"top_p": 0.9})] == [
        (1, None),
        (4, None),
        (1, 0.9),
    ]


@pytest.mark.parametrize("decoding", [GREEDY, BEAMS], ids=["greedy", "beams"])
def test_a_model_says_what_it_has_learned(learned, decoding):
    texts = generate(learned, TABLES, 60, Decoding(decoding.beams, None, 40), seeded(0))
    assert texts == [entry.references[0] for entry in ENTRIES]


@pytest.mark.parametrize("decoding", [GREEDY, BEAMS], ids=["greedy", "beams"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_text_does_not_depend_on_the_company_of_its_table(kind, decoding):
    language = tiny_language(kind)
    together = generate(language, TABLES, 60, decoding, seeded(0))
    assert together == generate(language, TABLES, 60, decoding, seeded(1), batch_size=1)
    assert generate(language, TABLES[::-1], 60, decoding, seeded(0)) == together[::-1]


def test_greedy_takes_the_likeliest_token():
    language = tiny_language("gpt2")
    ids = prompts(TABLES[:1], language, 60)[0][None]
    for _ in range(12):
        best = language.model(ids).logits[0, -1].argmax()
        if best == language.end:
            break
        ids = torch.cat([ids, best.view(1, 1)], dim=1)
    begin = len(prompts(TABLES[:1], language, 60)[0])
    expected = " ".join(language.tokenizer.decode(ids[0, begin:], skip_special_tokens=True).split())
    assert generate(language, TABLES[:1], 60, GREEDY, seeded(0)) == [expected]


def test_samples_are_those_of_the_generator_and_leave_the_global_state_alone():
    language = tiny_language("llama")
    before = torch.get_rng_state()
    first, again, other = (generate(language, TABLES, 60, SAMPLED, seeded(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert torch.equal(before, torch.get_rng_state())
    assert language.model.training


def test_texts_end_where_the_context_does():
    language = tiny_language("gpt2")
    long = "name : " * 40
    texts = generate(language, [long, TABLES[0]], 1000, Decoding(1, None, 500), seeded(0))
    assert len(texts) == 2


def test_generations_are_kept_as_lines_of_json(tmp_path):
    path = tmp_path / "run" / "generations.jsonl"
    write_generations(path, ENTRIES, ["a café", "b", "", "d"])
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert rows[0] == {"table": TABLES[0], "references": list(ENTRIES[0].references), "hypothesis": "a café"}
    read = read_generations(path)
    assert [row.hypothesis for row in read] == ["a café", "b", "", "d"]
    assert [row.references for row in read] == [entry.references for entry in ENTRIES]


@pytest.mark.parametrize("content", ["no json\n", "[]\n", '{"table": "x"}\n', None])
def test_a_file_that_holds_no_generations_is_refused(tmp_path, content):
    path = tmp_path / "generations.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidArgument, match="generations"):
        read_generations(path)


@pytest.mark.parametrize(
    "choices", [{"beams": 0}, {"top_p": 0.0}, {"top_p": 1.5}, {"beams": 3, "top_p": 0.9}, {"longest": 0}]
)
def test_bad_choices_are_refused(choices):
    with pytest.raises(InvalidArgument):
        Decoding(**{"beams": 1, **choices})
