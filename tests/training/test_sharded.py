"""What `fully_shard` has shared out, in one process: shares are put aside and put back, and what is none is refused."""

import warnings

import pytest
import torch
from tests.training.helpers import small_model
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, distribute_module, distribute_tensor

from plrvo.training.sharded import Shards, Whole, is_of_fsdp, shards_of
from plrvo.training.sharded_optimizer import check_shards
from plrvo.validate import InvalidArgument


@pytest.fixture(autouse=True)
def one_process():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def sharded(module: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(module[0], mesh=mesh)
    return fully_shard(module, mesh=mesh)


def hooks(module: nn.Module) -> list:
    registers = [(m._forward_pre_hooks, m._forward_hooks) for m in module.modules()]
    return [(key, hook) for pair in registers for register in pair for key, hook in register.items()]


def test_a_try_has_plain_whole_parameters_and_no_hook_of_fsdp_and_leaves_all_as_it_was():
    module = sharded(small_model())
    shards, before, kept = shards_of(module), list(module.parameters()), hooks(module)
    with shards.turn():
        assert [p is q for p, q in zip(module.parameters(), before, strict=True)] == [True] * len(before)
        shards.ask()
        found = list(module.parameters())
        assert all(type(p) is nn.Parameter for p in found)
        for p, q in zip(found, small_model().parameters(), strict=True):
            assert torch.equal(p, q)
        assert not any(is_of_fsdp(hook) for _, hook in hooks(module))
        with shards.at_rest():
            assert next(module.parameters()) is before[0]
        shards.ask()
        assert next(module.parameters()) is found[0]  # gathered once in a turn
    assert [p is q for p, q in zip(module.parameters(), before, strict=True)] == [True] * len(before)
    assert hooks(module) == kept
    assert sum(is_of_fsdp(hook) for _, hook in kept) == 4


def test_a_try_that_fails_leaves_all_as_it_was_too():
    module = sharded(small_model())
    shards, before, kept = shards_of(module), list(module.parameters()), hooks(module)

    def fails() -> None:
        with shards.turn():
            shards.ask()
            raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        fails()
    assert next(module.parameters()) is before[0]
    assert hooks(module) == kept
    with pytest.raises(RuntimeError, match="outside of a turn"):
        shards.ask()


def test_a_parameter_is_known_by_its_share_whoever_has_gathered_it():
    module = sharded(small_model())
    shards, own = shards_of(module), dict(module.named_parameters())
    assert isinstance(shards, Shards)
    module.unshard()
    assert module[4].weight is not own["4.weight"]
    assert shards.known(module[4], module[4].weight) is own["4.weight"]
    shards.rest()
    assert module[4].weight is own["4.weight"]
    assert [shards.is_unit(m) for m in (module, module[0], module[4])] == [True, True, False]


def test_a_gradient_of_autograds_is_refused():
    module = sharded(small_model())
    shards = shards_of(module)
    shards.begin_backward()
    shards.end_backward()
    module(torch.zeros(2, 1, 8, 8)).sum().backward()
    with pytest.raises(InvalidArgument, match=r"0\.weight.*without a clip"):
        shards.end_backward()
    assert all(p.grad is None for p in module.parameters())


def test_a_module_in_one_piece_has_nothing_to_gather():
    module = small_model()
    whole = shards_of(module)
    assert type(whole) is Whole
    with whole.turn(), whole.whole(), whole.at_rest(), whole.quiet([]):
        whole.ask()
        assert whole.known(module[0], module[0].weight) is module[0].weight
    check_shards(module, "hooks", "l1", batch_first=False)


def test_what_is_shared_out_otherwise_is_refused():
    mesh = init_device_mesh("cpu", (1,))
    parts = small_model()
    fully_shard(parts[0], mesh=mesh)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = FullyShardedDataParallel(small_model(), device_id=torch.device("cpu"))

    def replicated(name: str, m: nn.Module, mesh: object) -> None:
        for key, p in list(m.named_parameters(recurse=False)):
            m.register_parameter(key, nn.Parameter(distribute_tensor(p, mesh, [Replicate()])))

    tensors = distribute_module(small_model(), mesh, replicated)
    for module, match in ((parts, r"1\.weight \(not shared out"), (first, "fully_shard"), (tensors, "DTensor")):
        with pytest.raises(InvalidArgument, match=match):
            check_shards(module, "auto", "flat", batch_first=True)
    check_shards(sharded(small_model()), "auto", "flat", batch_first=True)
