"""The vectorised ensemble against a plain loop that knows nothing of it, and against the training engine."""

import numpy as np
import pytest
import torch
from scipy import stats
from tests.audit.plain import from_flat, network, to_flat, train_plain
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from plrvo.audit.ensemble import Recipe, train
from plrvo.audit.models import BinaryLogistic, Examples, Logistic, TwoLayer, make_model, successes
from plrvo.noise import GammaPLRV, Gaussian, Laplace
from plrvo.training import PrivacyEngine
from plrvo.validate import InvalidArgument

KINDS = [("lr", 2, None), ("lr", 4, None), ("fnn", 2, 5), ("fnn", 3, 5)]
WITH_NOISE = [(*KINDS[1], Laplace(0.2)), (*KINDS[2], GammaPLRV(k=5.0, theta=1.0, shared=True))]


def toy(classes: int, n: int = 24, features: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.random((n, features)).astype(np.float32), generator.integers(classes, size=n)


@pytest.mark.parametrize(("kind", "classes", "hidden"), KINDS)
@pytest.mark.parametrize("clip", [0.3, None])
def test_without_noise_and_with_all_examples_the_ensemble_is_the_plain_loop(kind, classes, hidden, clip):
    x, y = toy(classes)
    model = make_model(kind, x.shape[1], classes, hidden or 0)
    recipe = Recipe(sample_rate=1.0, steps=5, clip=clip, learning_rate=2.0, divisor=12.0)
    generator = np.random.default_rng(1)
    ensemble = train(model, Examples(x, y, torch.float64), recipe, None, 3, generator)
    transposed = isinstance(model, BinaryLogistic)
    plain = train_plain(model, network(x.shape[1], classes, hidden), x, y, recipe, None, generator, transposed)
    assert ensemble.shape == (3, model.dimension)
    for row in ensemble:
        torch.testing.assert_close(row, plain, rtol=1e-10, atol=1e-12)
    assert not torch.equal(plain, model.initial(1, torch.float64)[0])


# Hundreds of runs each: one noise against the plain loop, the other against the engine.
IN_THE_LOOP = [
    pytest.param(*WITH_NOISE[0], id="laplace"),
    pytest.param(*WITH_NOISE[1], marks=pytest.mark.slow, id="shared"),
]
IN_THE_ENGINE = [
    pytest.param(*WITH_NOISE[0], marks=pytest.mark.slow, id="laplace"),
    pytest.param(*WITH_NOISE[1], id="shared"),
]


@pytest.mark.parametrize(("kind", "classes", "hidden", "noise"), IN_THE_LOOP)
def test_with_batches_and_noise_the_ensemble_has_the_law_of_the_plain_loop(kind, classes, hidden, noise):
    """Two parameters, Kolmogorov-Smirnov at level 1e-5 each: false alarm at most 2e-5 per case."""
    x, y = toy(classes, n=10)
    model = make_model(kind, x.shape[1], classes, hidden or 0)
    recipe = Recipe(sample_rate=0.3, steps=3, clip=0.3, learning_rate=1.0, divisor=3.0)
    ensemble = train(model, Examples(x, y), recipe, noise, 4000, np.random.default_rng(2)).numpy()
    generator, net = np.random.default_rng(3), network(x.shape[1], classes, hidden)
    plain = np.stack([train_plain(model, net, x, y, recipe, noise, generator, False).numpy() for _ in range(250)])
    direction = np.random.default_rng(4).standard_normal(model.dimension)
    for project in (lambda p: p @ direction, lambda p: p[:, 0]):
        assert stats.ks_2samp(project(ensemble), project(plain)).pvalue > 1e-5


def engine_parameters(kind, hidden, x, y, recipe, noise, runs: int) -> np.ndarray:
    """Final parameters of so many runs of the training engine, as the ensemble lays them out."""
    classes, generator = int(y.max()) + 1, torch.Generator().manual_seed(8)
    model = make_model(kind, x.shape[1], classes, hidden or 0)
    work = plrvo.Workload(recipe.sample_rate, recipe.steps, recipe.clip, model.dimension)
    plan = plrvo.Plan.certify(noise, work, 1e-5)
    data = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    rows = []
    for _ in range(runs):
        net = network(x.shape[1], classes, hidden, torch.float32)
        from_flat(net, model.initial(1)[0], transposed=False)
        wrapped, optimizer, loader = PrivacyEngine(plan).make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=recipe.learning_rate),
            data_loader=DataLoader(data),
            expected_batch_size=int(recipe.divisor),
            noise_generator=generator,
            sample_generator=generator,
            steps_per_epoch=recipe.steps,
        )
        for a, b in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(wrapped(a), b).backward()
            optimizer.step()
        rows.append(to_flat(net, transposed=False).numpy())
    return np.stack(rows)


@pytest.mark.parametrize(("kind", "classes", "hidden", "noise"), IN_THE_ENGINE)
def test_the_ensemble_has_the_law_of_the_training_engine(kind, classes, hidden, noise):
    """Two parameters, Kolmogorov-Smirnov at level 1e-5 each: false alarm at most 2e-5 per case."""
    x, y = toy(classes, n=10)
    model = make_model(kind, x.shape[1], classes, hidden or 0)
    recipe = Recipe(sample_rate=0.3, steps=3, clip=0.3, learning_rate=1.0, divisor=3.0)
    ensemble = train(model, Examples(x, y), recipe, noise, 4000, np.random.default_rng(9)).numpy()
    engine = engine_parameters(kind, hidden, x, y, recipe, noise, 120)
    direction = np.random.default_rng(4).standard_normal(model.dimension)
    for project in (lambda p: p @ direction, lambda p: p[:, 0]):
        assert stats.ks_2samp(project(ensemble), project(engine)).pvalue > 1e-5


def test_binary_logistic_is_softmax_regression_with_two_classes():
    """The sparse form for two classes and the general one have the same law: Kolmogorov-Smirnov at level 1e-5."""
    x, y = toy(2, n=40)
    recipe = Recipe(sample_rate=0.2, steps=6, clip=0.2, learning_rate=3.0, divisor=8.0)
    point = torch.from_numpy(x[0])
    margins = []
    for seed, model in enumerate((BinaryLogistic(6), Logistic(6, 2))):
        parameters = train(model, Examples(x, y), recipe, Gaussian(0.3), 3000, np.random.default_rng(seed))
        logits = model.logits(parameters, point)
        margins.append((logits[:, 1] - logits[:, 0]).numpy())
    assert stats.ks_2samp(*margins).pvalue > 1e-5


def test_models_of_an_ensemble_are_independent():
    """Correlation over 1000 pairs of neighbours: false alarm 6e-5 at four standard deviations."""
    x, y = toy(2)
    recipe = Recipe(sample_rate=0.2, steps=4, clip=0.2, learning_rate=1.0, divisor=5.0)
    for model, noise in ((BinaryLogistic(6), GammaPLRV(3.0, 1.0, shared=True)), (TwoLayer(6, 4, 2), Laplace(0.1))):
        parameters = train(model, Examples(x, y), recipe, noise, 2000, np.random.default_rng(5)).numpy()
        spread = np.abs(parameters[:, 0] - np.median(parameters[:, 0]))
        assert abs(stats.spearmanr(spread[::2], spread[1::2]).statistic) < 4 / np.sqrt(1000)


def test_gaps_between_successes_make_a_poisson_batch():
    """Each place is taken with probability q, pairs with q^2: false alarm below 1e-4 (four standard deviations)."""
    generator = np.random.default_rng(6)
    n, q, rounds = 50, 0.2, 20_000
    table = np.zeros(n * rounds, dtype=bool)
    table[successes(n * rounds, q, generator)] = True
    table = table.reshape(rounds, n)
    assert abs(table.mean() - q) < 4 * np.sqrt(q * (1 - q) / table.size)
    assert abs((table[:, 3] & table[:, 4]).mean() - q**2) < 4 * np.sqrt(q**2 * (1 - q**2) / rounds)
    assert np.abs(table.mean(axis=0) - q).max() < 5 * np.sqrt(q * (1 - q) / rounds)
    assert len(successes(1000, 1.0, generator)) == 1000


def test_a_step_with_empty_batches_still_adds_noise():
    x, y = toy(3)
    recipe = Recipe(sample_rate=1e-9, steps=1, clip=0.2, learning_rate=1.0, divisor=1.0)
    for model in (BinaryLogistic(6), Logistic(6, 3), TwoLayer(6, 4, 3)):
        parameters = train(model, Examples(x, y % 2), recipe, Laplace(1.0), 5, np.random.default_rng(7))
        assert torch.all(parameters != model.initial(5))


def test_the_protocols_models_have_the_papers_sizes():
    assert make_model("lr", 784, 2).dimension == 1570
    assert make_model("fnn", 784, 2).dimension == 25_186
    assert make_model("lr", 100, 100).dimension == 10_100
    assert make_model("fnn", 100, 100).dimension == 6_532


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"clip": 0.0}, "clip"),
        ({"sample_rate": 2.0}, "sample_rate"),
        ({"steps": 0}, "steps"),
        ({"divisor": 0}, "divisor"),
    ],
)
def test_bad_recipes_are_refused(change, named):
    good = {"sample_rate": 0.1, "steps": 1, "clip": 1.0, "learning_rate": 1.0, "divisor": 1.0}
    with pytest.raises(InvalidArgument, match=named):
        Recipe(**{**good, **change})
    with pytest.raises(InvalidArgument, match="model"):
        make_model("cnn", 4, 2)  # type: ignore[arg-type]
