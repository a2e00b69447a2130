"""Noise and batches of unseeded runs come from a cipher, and of a seeded one from a generator that the run admits."""

import pytest
import torch
from tests.training.helpers import private, seeded, small_data, small_model
from torch.utils.data import DataLoader

import plrvo
from plrvo.noise import Keystream
from plrvo.tasks.settings import Streams
from plrvo.training import PrivacyEngine
from plrvo.training.randomness import generator_for
from plrvo.validate import InvalidArgument


def engine_with(**generators: object) -> tuple[PrivacyEngine, object, object]:
    module = small_model()
    work = plrvo.Workload(sample_rate=0.1, steps=3, clip=1.0, dimension=sum(p.numel() for p in module.parameters()))
    engine = PrivacyEngine(plrvo.Plan.certify(plrvo.Gaussian(1.0), work, 1e-4))
    _, optimizer, _ = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data()),
        **generators,
    )
    return engine, optimizer, engine.sampler


def test_an_engine_without_generators_draws_from_keystreams_of_the_operating_system() -> None:
    engine, optimizer, sampler = engine_with()
    for generator in (optimizer.generator, sampler.generator):
        assert isinstance(generator, Keystream)
        assert not generator.fixed
    assert not engine.seeded


@pytest.mark.parametrize("name", ["noise_generator", "sample_generator"])
@pytest.mark.parametrize("generator", [lambda: seeded(1), lambda: Keystream(bytes(32))], ids=["torch", "keystream"])
def test_a_generator_of_the_callers_makes_the_run_a_seeded_one(name: str, generator) -> None:
    assert engine_with(**{name: generator()})[0].seeded


def test_a_keystream_of_the_operating_system_passed_by_the_caller_is_private() -> None:
    assert not engine_with(noise_generator=Keystream(), sample_generator=Keystream())[0].seeded


def test_other_generators_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"noise_generator='int'.*torch\.Generator or a plrvo\.noise\.Keystream"):
        generator_for(False, 5, "noise_generator")
    with pytest.raises(InvalidArgument, match="noise_generator='Generator'"):
        generator_for(True, seeded(1), "noise_generator")


def test_streams_of_one_seed_are_the_same_and_of_none_are_not() -> None:
    def words(streams: Streams) -> list[int]:
        return [int(s.words(1)[0]) for s in (streams.batches, streams.noise)]

    assert words(Streams.from_seed(3)) == words(Streams.from_seed(3))
    one, other = words(Streams.from_seed(None)), words(Streams.from_seed(None))
    assert len({*one, *other}) == 4  # agreeing words have probability 2^-64
    assert not Streams.from_seed(None).noise.fixed


def test_the_generator_cannot_be_exchanged_afterwards() -> None:
    *_, optimizer, _, _ = private()
    with pytest.raises(InvalidArgument, match="generator"):
        optimizer.generator = seeded(1)
