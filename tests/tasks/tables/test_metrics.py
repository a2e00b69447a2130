"""Each metric against hand-computed cases, against another program, and for what must hold on any text."""

import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from nltk.translate.meteor_score import single_meteor_score
from nltk.translate.nist_score import corpus_nist
from tests.tasks.tables.corpus import segments

from plrvo.tasks.tables.metrics import METRICS, Bleu, CiderD, MeteorExactStem, Nist, RougeL, score_all
from plrvo.tasks.tables.metrics.alignment import STEM_WEIGHT, align
from plrvo.tasks.tables.metrics.meteor import score, stem
from plrvo.tasks.tables.metrics.rouge import common_subsequence
from plrvo.tasks.tables.metrics.tokens import mteval_tokens, ptb_tokens
from plrvo.validate import InvalidArgument

OTHERS = json.loads(Path(__file__).with_name("reference_values.json").read_text(encoding="utf-8"))
HYPOTHESES, REFERENCES = segments(60, seed=7)

words = st.sampled_from(["pub", "pubs", "river", "serves", "serving", "a", "b", "c"])
sentence = st.lists(words, min_size=1, max_size=8)
text = sentence.map(" ".join)
corpus = st.lists(st.tuples(text, st.lists(text, min_size=1, max_size=3)), min_size=2, max_size=5)
by_name = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


def test_bleu_by_hand():
    # 5 words against 6: precisions 5/5, 3/4, 1/3 and, smoothed because 0 of 2, 1/4; brevity exp(1 - 6/5).
    value = Bleu()(["the cat on the mat"], [["the cat sat on the mat"]])
    assert value == pytest.approx((1 * 3 / 4 * 1 / 3 * 1 / 4) ** 0.25 * math.exp(1 - 6 / 5))


def test_bleu_takes_the_closest_reference_length_and_any_number_of_references():
    assert Bleu()(["a b c d e", "f g h i"], [["a b c d e", "x"], ["f g h i", "f g h i j k", "y"]]) == 1.0


def test_nist_by_hand():
    # Words of the references: a a b c, counts 2 1 1 of 4: 1, 2 and 2 bits; "a b" once after two a's: 1 bit.
    # The hypothesis "a b" matches a, b (3 bits over 2 words) and "a b" (1 bit over 1 pair); 2 words for 2 on average.
    assert Nist()(["a b"], [["a b", "a c"]]) == pytest.approx(3 / 2 + 1)
    # Two words against three: half.
    assert Nist()(["a b"], [["a b c"]]) == pytest.approx(0.5 * (2 * math.log2(3) / 2 + 0))


def test_nist_is_nltks_where_each_segment_has_one_reference():
    references = [those[:1] for those in REFERENCES]
    theirs = corpus_nist(
        [[mteval_tokens(those[0])] for those in references], [mteval_tokens(text) for text in HYPOTHESES], n=5
    )
    assert Nist()(HYPOTHESES, references) == pytest.approx(theirs, rel=1e-12)


def test_rouge_by_hand():
    # Two of four words against two of three: P = 1/2, R = 2/3.
    f = (1 + 1.44) * (1 / 2) * (2 / 3) / (2 / 3 + 1.44 / 2)
    assert RougeL()(["a x b y"], [["a b z"]]) == pytest.approx(f)
    assert RougeL()(["a x b y", "q"], [["a b z"], ["z"]]) == pytest.approx(f / 2)


@given(sentence, sentence)
def test_the_common_subsequence_is_the_longest_one(first, second):
    def inside(words, longer):
        rest = iter(longer)
        return all(word in rest for word in words)

    longest = max(
        length
        for length in range(len(first) + 1)
        if any(inside(words, second) for words in itertools.combinations(first, length))
    )
    assert common_subsequence(first, second) == longest


def test_cider_by_hand():
    # ln 2 for each n-gram of the first segment. One word and one pair of each agree; with one length apart.
    # n = 1: h = (a, b), r = (a, b, c): 2/(sqrt 2 sqrt 3); n = 2: ab against ab, bc: 1/sqrt 2; longer ones: nothing.
    first = (2 / math.sqrt(6) + 1 / math.sqrt(2)) / 4 * math.exp(-1 / 72)
    assert CiderD()(["a b", "z"], [["a b c"], ["x y"]]) == pytest.approx(10 * first / 2)


def test_cider_gives_repetition_no_credit():
    references = [["a b c d e"], ["v w x y z"]]
    assert CiderD()(["a a a a a", "v w x y z"], references) < CiderD()(["a b c d e", "v w x y z"], references) - 4


def test_rouge_and_cider_are_those_of_pycocoevalcap():
    theirs = OTHERS["pycocoevalcap 1.2"]
    assert RougeL()(HYPOTHESES, REFERENCES) == pytest.approx(theirs["rouge_l"], rel=1e-9)
    assert CiderD()(HYPOTHESES, REFERENCES) == pytest.approx(theirs["cider"], rel=1e-9)


def test_meteor_by_hand():
    # "the pub" is one chunk of two, "near" another: P = 3/4, R = 3/3.
    f = 0.75 / (0.85 * 0.75 + 0.15)
    assert MeteorExactStem()(["near x the pub"], [["the pub near"]]) == pytest.approx(f * (1 - 0.6 * (2 / 3) ** 0.2))


def test_meteor_is_the_java_tools_with_these_options():
    theirs = OTHERS["METEOR 1.5"]
    found = [
        max(score(align(ptb_tokens(h), ptb_tokens(r), stem)) for r in those)
        for h, those in zip(HYPOTHESES, REFERENCES, strict=True)
    ]
    assert found == pytest.approx(theirs["segments"], rel=1e-9)
    assert MeteorExactStem()(HYPOTHESES, REFERENCES) == pytest.approx(theirs["set"], rel=1e-9)


@given(sentence, sentence)
def test_meteor_is_nltks_apart_from_its_parameters(hypothesis, reference):
    class NoWordNet:
        def synsets(self, word):
            return []

    class Stemmer:
        def stem(self, word):
            return word  # as nltk weighs stem matches 1, only exact ones can be compared

    # nltk matches each word greedily from the end: comparable where no word repeats.
    hypothesis, reference = list(dict.fromkeys(hypothesis)), list(dict.fromkeys(reference))
    theirs = single_meteor_score(
        reference, hypothesis, stemmer=Stemmer(), wordnet=NoWordNet(), alpha=0.85, beta=0.2, gamma=0.6
    )
    found = align(hypothesis, reference, stem=lambda word: word)
    assume(hypothesis != reference)  # for which METEOR 1.5 has no penalty and nltk has one
    assert score(found) == pytest.approx(theirs)


@given(sentence, sentence)
def test_the_alignment_is_the_best_there_is(hypothesis, reference):
    """Against every alignment of up to six words."""
    hypothesis, reference = hypothesis[:6], reference[:6]
    best = (0.0, 0)

    def extend(i, used, last, weight, chunks):
        nonlocal best
        if i == len(hypothesis):
            whole = chunks == 1 and len(used) == len(hypothesis) == len(reference)
            best = min(best, (-round(weight, 9), 0 if whole else chunks))
            return
        extend(i + 1, used, -2, weight, chunks)
        for j, word in enumerate(reference):
            if j not in used and stem(word) == stem(hypothesis[i]):
                more = 1.0 if word == hypothesis[i] else STEM_WEIGHT
                extend(i + 1, used | {j}, j, weight + more, chunks + (last + 1 != j))

    extend(0, frozenset(), -2, 0.0, 0)
    found = align(hypothesis, reference, stem)
    assert (-round(found.weight, 9), found.chunks) == best


@by_name
@given(corpus)
def test_the_order_of_references_and_of_segments_does_not_matter(metric, pairs):
    hypotheses, references = zip(*pairs, strict=True)
    value = metric(hypotheses, references)
    turned = [list(reversed(those)) for those in reversed(references)]
    assert metric(list(reversed(hypotheses)), turned) == pytest.approx(value)
    assert metric([h.upper() for h in hypotheses], references) == pytest.approx(value)


@pytest.mark.parametrize(
    ("metric", "most"), [(Bleu(), 1), (MeteorExactStem(), 1), (RougeL(), 1), (CiderD(), 10)], ids=lambda m: str(m)[:6]
)
@given(corpus)
def test_nothing_beats_the_maximum_and_the_reference_itself_reaches_it(metric, most, pairs):
    hypotheses, references = zip(*pairs, strict=True)
    assert 0 <= metric(hypotheses, references) <= most * (1 + 1e-12)
    own = metric(["the pub serves good food"], [["x y z", "the pub serves good food"]])
    if most == 1:
        assert own == pytest.approx(1)
    distinct = ["a b c d e", "v w x y z"]
    assert CiderD()(distinct, [[text] for text in distinct]) == pytest.approx(10)


@by_name
def test_text_without_a_common_word_or_without_words_scores_next_to_nothing(metric):
    assert metric(["q r s t", "q r s t"], [["a b c d"], ["e f g h"]]) < 0.1
    assert metric(["", "..."], [["a b c d"], ["e f g h"]]) == 0


@by_name
def test_what_is_no_test_set_is_refused(metric):
    for hypotheses, references, named in (
        ([], [], "hypotheses"),
        (["a"], [], "references"),
        (["a"], [["a"], ["b"]], "hypotheses"),
        (["a", "b"], [["a"], []], "references[1]"),
        (["a"], ["a"], "references[0]"),
        ("a", [["a"]], "hypotheses"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            metric(hypotheses, references)
        assert caught.value.argument == named


def test_every_metric_says_what_it_is():
    assert [metric.name for metric in METRICS] == list(score_all(["a b"], [["a b"]]))
    assert all(len(metric.what) > 30 for metric in METRICS)
    assert "no synonyms" in MeteorExactStem().what


def test_words_are_those_of_stanfords_tokeniser():
    dropped = {"''", "'", "``", "`", "-lrb-", "-rrb-", ".", "?", "!", ",", ":", "-", "--", "...", ";"}
    theirs = [[word for word in line.split() if word not in dropped] for line in OTHERS["Stanford tokens"]]
    assert [ptb_tokens(text) for those in REFERENCES for text in those] == theirs
