"""What cannot be made private is refused before anything is wrapped."""

import warnings

import pytest
import torch
from opacus.data_loader import DPDataLoader
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from tests.training.helpers import dimension_of, seeded, small_data, small_model, take_steps
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import plrvo
from plrvo.training.given import check_module, check_optimizer
from plrvo.training.sampler import size_of
from plrvo.validate import InvalidArgument


def test_a_module_of_halves_is_refused():
    with pytest.raises(InvalidArgument, match="float32"):
        check_module(nn.Sequential(nn.Linear(3, 3)).to(torch.bfloat16))


def made(plan, module, **options):
    engine = plrvo.PrivacyEngine(plan)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    data = DataLoader(small_data())
    return engine, *engine.make_private(module=module, optimizer=optimizer, data_loader=data, **options)


def test_opacus_wrappers_are_named_with_what_is_in_them():
    data = DataLoader(small_data(), batch_size=4)
    with pytest.raises(InvalidArgument, match=r"^data_loader='DPDataLoader': expected the DataLoader that it was made"):
        size_of(DPDataLoader.from_data_loader(data))
    wrapped, plain = GradSampleModule(nn.Linear(3, 2)), nn.Linear(3, 2)
    for module, at in ((wrapped, "module"), (nn.Sequential(wrapped), r"module\.0")):
        with pytest.raises(
            InvalidArgument, match=rf"^module='GradSampleModule'.*{at}\._module, and the plain optimizer"
        ):
            made(None, module, noise_multiplier=1.0, max_grad_norm=1.0)
    optimizer = DPOptimizer(
        torch.optim.SGD(plain.parameters(), lr=0.1), noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=4
    )
    with pytest.raises(InvalidArgument, match=r"^optimizer='DPOptimizer'.*optimizer\.original_optimizer"):
        plrvo.PrivacyEngine().make_private(
            module=plain, optimizer=optimizer, data_loader=data, noise_multiplier=1.0, max_grad_norm=1.0
        )


def plan_of(noise, dimension, delta=1e-5):
    return plrvo.Plan.certify(noise, plrvo.Workload(0.1, 3, 1.0, dimension), delta)


def test_an_engine_takes_the_file_of_a_plan_and_refuses_what_is_none(tmp_path):
    plan = plan_of(plrvo.Gaussian(2.0), 10)
    plan.save(tmp_path / "plan.json")
    assert plrvo.PrivacyEngine(str(tmp_path / "plan.json")).plan == plan
    for wrong in (plrvo.Gaussian(2.0), 3, plan.to_dict()):
        with pytest.raises(InvalidArgument, match=r"plan=.*a Plan or the file of one"):
            plrvo.PrivacyEngine(wrong)


def test_a_plan_of_gaussian_noise_holds_for_any_number_of_parameters_and_no_other_does():
    module = small_model()
    engine, *_ = made(plan_of(plrvo.Gaussian(2.0), 1), module)
    assert engine.plan.workload.dimension == dimension_of(module)
    assert engine.plan.bracket == plan_of(plrvo.Gaussian(2.0), 1).bracket
    with pytest.raises(InvalidArgument, match="dimension=1: expected at least"):
        made(plan_of(plrvo.Laplace(2.0), 1), small_model())


def test_a_delta_that_allows_to_publish_an_example_is_warned_of():
    with pytest.warns(UserWarning, match=r"delta 0\.005 is not below 1/N = 0\.005"):  # there are 200 examples
        made(plan_of(plrvo.Gaussian(2.0), 1, delta=0.005), small_model())
    engine, *_ = made(plan_of(plrvo.Gaussian(2.0), 1), small_model())
    for ask in (engine.get_epsilon, engine.epsilon):
        ask(1e-4)
        with pytest.warns(UserWarning, match="1/N"):
            ask(0.1)


def test_a_process_of_torchrun_that_joins_no_others_is_told_so(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="each trains a model of its own"):
        made(plan_of(plrvo.Gaussian(1.0), 1), small_model())


def in_place(module):
    module.compile()
    return module


@pytest.mark.parametrize("compiled", [torch.compile, in_place])
def test_a_compiled_module_is_trained_as_it_was_written(compiled):
    """The loop of the user's that compiles first takes the steps of one that does not."""
    weights = []
    for prepare in (lambda module: module, compiled):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of parts of its own
            module = prepare(small_model())
        plan = plan_of(plrvo.Gaussian(2.0), 1)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            _, model, optimizer, loader = made(plan, module, noise_generator=seeded(1), sample_generator=seeded(2))
        told = [str(w.message) for w in heard if "torch.compile is put aside" in str(w.message)]
        assert len(told) == (prepare is compiled)
        take_steps(model, optimizer, nn.CrossEntropyLoss(), loader)
        model.eval()
        weights.append((model(small_data().tensors[0][:3]), *model.parameters()))
    for one, other in zip(*weights, strict=True):
        assert torch.equal(one, other)


def test_what_accelerate_or_a_distributed_loop_has_prepared_is_refused_in_a_line():
    from accelerate import Accelerator

    module, data = small_model(), DataLoader(small_data(), batch_size=50)
    plain = torch.optim.SGD(module.parameters(), lr=0.1)
    wanted = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    prepared = Accelerator(cpu=True).prepare(plain)
    with pytest.raises(InvalidArgument, match=r"optimizer='AcceleratedOptimizer'.*no prepare\(\)"):
        plrvo.PrivacyEngine().make_private(module=module, optimizer=prepared, data_loader=data, **wanted)
    share = DistributedSampler(small_data(), num_replicas=2, rank=0)
    with pytest.raises(InvalidArgument, match=r"data_loader='DistributedSampler'.*no sampler"):
        plrvo.PrivacyEngine().make_private(
            module=module, optimizer=plain, data_loader=DataLoader(small_data(), sampler=share), **wanted
        )


def test_a_loop_of_accelerate_goes_backward_by_it():
    from accelerate import Accelerator

    module, engine = small_model(), plrvo.PrivacyEngine()
    module, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data(), batch_size=100),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for x, y in loader:
        optimizer.zero_grad()
        Accelerator(cpu=True).backward(nn.functional.cross_entropy(module(x), y))
        optimizer.step()
    assert len(engine.accountant) == 2


def test_an_optimizer_of_sparse_gradients_is_refused_before_a_step_is_counted():
    module = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten())
    optimizer = torch.optim.SparseAdam(module.parameters())
    with pytest.raises(InvalidArgument, match=r"^optimizer='SparseAdam': expected one of dense gradients"):
        check_optimizer(optimizer, module)
