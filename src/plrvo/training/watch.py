"""What a private module is held to, whoever calls it: hooks on the user's own module, not on a wrapper around it.

Before each training pass: its trainable parameters are those that the plan was made for, and whenever it is called in
a form that is new (`forms`), as on its first batch, it is tried out (`probe`). Before each backward pass: the loss is a
sum over examples (`loss_form`). A copy of the module is under no engine: it computes, but does not train.
"""

from __future__ import annotations

import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from plrvo.training.apart import HALVES, IN_HALVES
from plrvo.training.bound import Bound
from plrvo.training.call import Call, Inputs, Lists, rows_of, without_rows
from plrvo.training.collated import Collated
from plrvo.training.collectives import gathered
from plrvo.training.descendants import Descendants, forget_descendants
from plrvo.training.draws import Draws
from plrvo.training.factors import Factors
from plrvo.training.forms import Form, Forms
from plrvo.training.inside import Inside
from plrvo.training.layout import layout_of
from plrvo.training.longest import Longest
from plrvo.training.loss_form import ALONE, WITHIN, NotASum, before_backward, crossing, detours, reached, trained_before
from plrvo.training.loss_hooks import LossHooks
from plrvo.training.memory import give_back
from plrvo.training.operations import Operation, leading_to, memory_of, started_from
from plrvo.training.order import moved_rows
from plrvo.training.padding import Padding
from plrvo.training.probe import PerExample, Tried, probe
from plrvo.training.recording import Output, Recording, forget_recordings, form
from plrvo.training.replay import CannotReplay, Replay
from plrvo.training.retries import Retries
from plrvo.training.sharded import Whole
from plrvo.training.structure import tensors_in
from plrvo.training.unchanged import Unchanged
from plrvo.validate import InvalidArgument

_TRIED = 3  # batches for each form of loss
# One in so many later losses is tried again, at random, or fewer where that takes long (`retries`); and modules.
_AGAIN, _MODULE_AGAIN = 64, 256
_OF_ITS_OWN_STEP = (
    "nothing that the module gave before, kept by a queue, a bank, a moving mean or a hidden state, detached or not: "
    "it carries examples into steps that they are not in. Use the outputs of this step, and constants"
)


class Watch(Bound):
    """Watches one module for one engine."""

    def __init__(
        self,
        module: nn.Module,
        *,
        reduction: str,
        per_example: PerExample,
        dimension: int = 0,
        public_weights: bool = False,
        on_rows: Callable[[int], None] | None = None,
        shards: Whole | None = None,
    ) -> None:
        super().__init__(module)
        self._shards = shards or Whole()
        forget_recordings()
        forget_descendants()
        self._reduction, self._per_example, self._dimension = reduction, per_example, dimension
        self._public_weights, self._factors = public_weights, Factors(reduction, dimension)
        self._on_rows = on_rows
        self._trainable = {p for p in module.parameters() if p.requires_grad}
        self._call_forms, self._tried = Forms(), dict[Form, Tried]()
        self._met: dict[Form, tuple[int, int]] = {}  # in how many steps such a form came, and the last of them
        self._steps = 0  # that were taken
        self._padding, self._longest = Padding(self._set_trying), Longest(self._set_trying)
        self._forms: dict[int, int] = {}  # how often a loss of each form was tried
        self._replay, self._hooks = Replay(dimension), LossHooks()
        self._retries = Retries()
        self._recording: Recording | None = None
        self._descendants, self._inside = Descendants(), Inside()
        weakref.finalize(self, self._descendants.forget)
        weakref.finalize(self, self._inside.forget)
        self._turn = 0  # backward passes of this step
        self._call: Call | None = None  # of the pass under way
        self._moved = Counter[str]()  # how often rows that an operation has moved were tried
        self._found = Tried()
        self._unchanged, self._seen_inputs, self._lists = Unchanged(module, self._shards), Inputs(), Lists()
        self._inputs: set[int] = set()
        self._outputs: list[Output] = []
        self._statistics: list[Tensor] = []  # of the batch, that the module has given
        self._learns_before = False  # whether the pass under way has inputs that lead to something that learns
        self.rows = 0
        self.draws: Draws | None = None  # that steps are settled against, as long as steps are to come
        self.seen_loss = self.is_trying = False
        self.learned_before = False  # whether gradients of this step have gone through to what is in front
        self.in_backward = False  # whether a loss that was seen is on its way back
        self._undo = [
            # Before any other hook: what those remember of a pass must not be overwritten by the passes of a try.
            module.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True).remove,
            module.register_forward_hook(self._leave, always_call=True).remove,  # also where the pass fails
            before_backward(self._check_loss),
        ]

    def __deepcopy__(self, memo: Any) -> Watch:
        return _watch_of_a_copy()

    def __reduce__(self) -> Any:
        return _watch_of_a_copy, ()

    def see_outputs(self) -> None:
        """From now on; after the wrapper's own hooks, which may have the last word on what comes out."""
        if self.module is not None:
            self._undo.append(self.module.register_forward_hook(self._after).remove)

    def ask(self, collated: Collated) -> None:
        """What the loader makes of single examples."""
        self._padding.collated = collated

    def remove(self) -> None:
        """Leave the module as it was."""
        self._stop_recording()
        self._descendants.forget()
        while self._undo:
            self._undo.pop()()

    def new_step(self, last: bool = True) -> None:
        """The step, or a part that is not its `last`, is settled: what comes next is heard from `go_on` on."""
        self._steps += last
        self.seen_loss, self._turn = False, 0
        self.forget_gradients()
        self.pause()
        self._padding.end()
        self._stop_recording()
        self._descendants.new_step(self._inside.let_go())
        self._seen_inputs.new_step()
        self._replay.new_step()
        self._retries.passed()

    def pause(self) -> None:
        """Hear of no operation until `go_on`: what happens inside of the module, or is ours."""
        if self._recording is not None:
            self._recording.pause()
        self._descendants.pause()
        self._inside.pause()

    def go_on(self) -> None:
        if self._recording is None:
            self._descendants.resume()
        else:
            self._recording.resume()

    def forget_gradients(self) -> None:
        """Those of the passes so far are dropped, and take part in no step."""
        self.learned_before = False

    def _stop_recording(self) -> None:
        if self._recording is not None:
            self._recording.end(self._outputs)
        self._recording, self._outputs = None, []

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            _refuse_compiled()
        self.pause()  # not what happens inside of the module
        if self.is_trying or not (module.training and torch.is_grad_enabled()):
            return None
        if module is not self.module:
            raise InvalidArgument(
                "module",
                type(module).__name__,
                "the module that make_private returned; a copy of it is not private (eval() to use it; to train it "
                "without privacy, load its state_dict into a fresh model)",
            )
        self._shards.rest()
        with self._shards.turn():
            return self._before_training(module, args, kwargs)

    def _before_training(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        now = {p for p in module.parameters() if p.requires_grad}
        device = next(iter(now)).device.type if now else "cpu"
        if torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) in HALVES:
            raise InvalidArgument("module", "under torch.autocast", f"{IN_HALVES}. {ALONE}")
        if now - self._trainable:
            names = {p: name for name, p in module.named_parameters()}
            raise InvalidArgument(
                "module",
                names[next(iter(now - self._trainable))],
                "the parameters that were trainable in make_private; unfreeze before it, with a plan of that dimension",
            )
        self.rows = rows_of(args, kwargs, self._dimension)
        if self._recording is not None and self._turn == 0:
            self._recording.begin_pass(self._outputs)
        if not self._outputs:
            self._inputs, self._statistics = set(), []
        inputs = tensors_in((args, kwargs))
        self._inputs |= {id(t) for t in inputs}
        if any(self._descendants.is_of_an_earlier_step(t) for t in inputs):
            raise InvalidArgument("module", "an input from outputs of an earlier step", _OF_ITS_OWN_STEP)
        self._learns_before = trained_before(inputs, self.rows, self._dimension)
        if self._on_rows:
            self._on_rows(self.rows)
        call = self._lists.known(Call(args, kwargs, self.rows, self._dimension))
        if self.rows == 0:  # one made-up example goes through, and nothing of it comes out: many layers fail on none
            made_up = call.one_made_up()
            self._unchanged.begin(None, self._set_trying)
            return made_up.args, dict(made_up.kwargs)
        self._try_new_form(module, call)
        if not self._outputs:
            self._padding.check(module, call, self._found.layouts, self._recording)
            self._longest.check(module, call)
        self._call = call
        self._unchanged.begin(call, self._set_trying)
        self._seen_inputs.note(call)
        self._inside.begin(inputs)
        return None

    def _try_new_form(self, module: nn.Module, call: Call) -> None:
        """Try the module if it was not tried in this form yet, and now and then if it was."""
        its_form = self._call_forms.of(module, call)
        due = False
        if its_form in self._tried:
            self._found = self._tried[its_form]
            due = self._found.silent and self._is_due(its_form)
            # Not again between two passes of one step, which takes long. A new form is tried there too: until a loss
            # goes back, the wrapper's book is empty, and what the first pass has left is in its graph alone.
            if self._outputs or not (due or self._retries.is_due("module", _MODULE_AGAIN)):
                return
        # Where only numbers differ, such as that of the step, fewer tries do.
        again = any(its_form.kind == tried.kind for tried in self._tried)
        certain = self._try(module, call, again=again and not due)
        if self.rows > 1 and self._found.learns and certain:
            self._tried[its_form] = self._found
            self._met.setdefault(its_form, (0, self._steps))

    def _is_due(self, form: Form) -> bool:
        """Whether a form in which a parameter had no gradient is to be tried again: in its 1st, 2nd, 4th, 8th.. step.

        Steps count, and not passes: in the many of one step parameters are what they were when it was tried.
        """
        met, last = self._met[form]
        if last == self._steps:
            return False
        self._met[form] = met + 1, self._steps
        return (met + 1) & met == 0

    def _try(self, module: nn.Module, call: Call, again: bool) -> bool:
        """Whether it is certain what has rows: in a batch of two, any pair of numbers may be of two examples."""
        self._set_trying(True)
        try:
            with self._retries.timed("module", again=again):
                return self._tried_out(module, call, again)
        finally:
            self._set_trying(False)

    def _tried_out(self, module: nn.Module, call: Call, again: bool) -> bool:
        try:
            self._found = probe(module, call, self._per_example, self._reduction, self._seen_inputs, again=again)
            return True
        except Exception:
            if (other := call.without_lists()) is None:
                raise
            self._found = probe(module, other, self._per_example, self._reduction, self._seen_inputs, again=again)
            return False

    def _check_order(self, module: nn.Module, call: Call, output: Any) -> None:
        """Try the module on rows that it has moved: the first times that it moves some, and then now and then."""
        found = self._found
        for operation, exchanged in moved_rows(tensors_in(output), self.rows).items():
            if self._moved[operation] >= _TRIED and not self._retries.is_due("module", _AGAIN):
                continue
            self._moved[operation] += 1
            try:
                self._try(module, call.picked(exchanged), again=True)
            finally:
                self._found = found

    def _set_trying(self, trying: bool) -> None:
        if trying:
            self._shards.ask()
        else:
            give_back()
        self.is_trying = trying

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._inside.pause()

    def _after(self, module: nn.Module, args: Any, output: Any) -> Any:
        if self.is_trying or module is not self.module or not (module.training and torch.is_grad_enabled()):
            if not self.is_trying:
                if module is self.module and self.draws is not None:
                    self._descendants.add_beside(tensors_in(output), at_a_batch=self.draws.current.out == 1)
                self.go_on()
            return None
        with self._shards.turn():
            return self._after_training(module, output)

    def _after_training(self, module: nn.Module, output: Any) -> Any:
        self._inside.end(tensors_in(output))
        self._unchanged.end()
        if self.rows == 0:
            output = without_rows(output, self._dimension)
        if self._recording is not None and self._recording.is_forgotten:
            # A pass that nobody has gone back from before another engine began. A loss of it is refused as a detour.
            self._recording, self._outputs = None, []
        if self._recording is None and not self._outputs:
            self._recording = Recording(self._descendants)
        turn = 0 if self._recording is None else self._recording.turn
        if self._call is not None:
            self._check_order(module, self._call, output)
            self._call = None
        for place, t in enumerate(tensors_in(output)):
            if t.requires_grad:
                layout = layout_of(t, self._found.layouts.get(place), self.rows, self._dimension) if self.rows else None
                is_sum = place not in self._found.not_sums
                of = (t, t.grad_fn, t._version, is_sum, layout, self._learns_before, turn, place)
                self._outputs.append(Output(*of, frozenset(t._backward_hooks or ())))
            elif place in self._found.statistics:
                self._statistics.append(t)
        if self._recording is not None:
            self._recording.resume(of=[o.tensor for o in self._outputs])
        return output if self.rows == 0 else None

    def _check_loss(self, loss: Tensor, weight: float) -> Callable[[], None] | None:
        self.pause()
        if self.is_trying or not self._outputs or loss.grad_fn is None or self.module is None:
            return self._go_on_recording
        stops = {o.node for o in self._outputs}
        met = reached(loss, {*stops, *(o.tensor.grad_fn for o in self._outputs)})
        if not met:
            return self._go_on_recording
        with self._shards.turn(), self._shards.quiet([o.tensor for o in self._outputs]):
            self._check_seen(loss, weight, stops, met)
        return self._leave_backward

    def _check_seen(self, loss: Tensor, weight: float, stops: set[Any], met: set[Any]) -> None:
        """A loss that the outputs lead to, before it goes back."""
        self.seen_loss = True
        if any(o.tensor._version != o.version for o in self._outputs):
            raise NotASum("outputs of the module that were changed in place before the loss: expected them as they are")
        if loss.ndim:
            raise NotASum(f"loss: expected one number, a {self._reduction} over examples; it has several")
        outputs = [o for o in self._outputs if o.node in met]
        self.learned_before |= any(o.learns_before for o in outputs)
        found = detours(loss, stops, self._trainable, self._inputs)
        if found is not None:
            raise NotASum(f"loss: expected a function of the module's outputs; it depends on {found}")
        recording = self._recording or Recording()
        steps = leading_to(recording.operations, loss)
        if any(self._descendants.is_of_an_earlier_step(t) for t in (loss, *(t for s in steps for t in s.given()))):
            raise NotASum(f"loss: made of outputs of an earlier step: expected {_OF_ITS_OWN_STEP}")
        if any(t.dtype in HALVES for s in steps for t in s.results):
            raise NotASum(f"loss: computed in halves; expected {IN_HALVES}")
        if (collective := gathered(recording.operations, steps, loss)) is not None:
            raise NotASum(
                f"loss: made of what other processes have ({collective}): expected a function of this process's own "
                "examples, each of which is clipped where it is. Logs may gather what they like, from a clone()"
            )
        if self.rows > 1:  # what one example does alone is its own
            self._check_outputs(outputs)
            self._check_statistics(steps)
            if not self._public_weights:
                self._factors.check(loss, stops, self.rows, weight, self._turn)
            self._replay.note(steps)
            self._check_terms(loss, outputs, recording, steps)
            self._hooks.begin(outputs, steps)
        self._turn += 1
        self.in_backward = True
        self._shards.begin_backward()
        self._unchanged.begin_backward()

    def _leave_backward(self) -> None:
        self.in_backward = False
        self._go_on_recording()
        self.seen_loss = False  # no step follows what is refused here
        self._hooks.end()
        self._shards.end_backward()
        self._unchanged.end_backward()
        self.seen_loss = True

    def _go_on_recording(self) -> None:
        # Not inside of a backward pass, from which checkpointed layers start passes of their own.
        if not self.is_trying and not self.in_backward:
            self.go_on()  # another loss of the same outputs may follow

    def _check_outputs(self, outputs: list[Output]) -> None:
        """Refuse outputs that a loss is made of, and that are neither rows of examples nor sums over them."""
        for o in outputs:
            if o.tensor.ndim and o.layout is None:
                raise NotASum(
                    f"loss: expected outputs of the module with a row for each example; one that it is made of has the "
                    f"shape {tuple(o.tensor.shape)}, in a batch of {self.rows}"
                )
            if not o.tensor.ndim and not o.is_sum:
                raise NotASum(
                    f"loss: expected a {self._reduction} over examples; the number that the module computes is not "
                    "(tokens that are not ignored, or a balance over the batch?). Compute the loss outside, by "
                    f"example, with reduction='none'. {WITHIN}"
                )

    def _check_statistics(self, steps: list[Operation]) -> None:
        if any(self._inside.made(t) for t in started_from(steps)):
            what = "a hook that keeps activations, or a mean of them?"
            raise NotASum(
                f"loss: made of what was computed inside of the module and is none of its outputs ({what}): return it "
                "from forward"
            )
        found, own = {memory_of(t) for t in self._statistics}, {id(o.tensor) for o in self._outputs}
        if found and any(memory_of(t) in found and id(t) not in own for t in started_from(steps)):
            what = "a mean, a threshold, a mask of the batch, which the module gives without a gradient"
            raise NotASum(f"loss: made of what changes with other examples ({what}): expected rows of examples' own")

    def _check_terms(self, loss: Tensor, outputs: list[Output], recording: Recording, steps: list[Operation]) -> None:
        """Carry the loss out again: at the first occurrences of its form, and then now and then."""
        its_form = form(steps, [o.tensor for o in outputs])
        self._padding.check_loss(loss, outputs, self.rows, its_form)
        tried = self._forms.get(its_form, 0)
        if tried >= _TRIED and not self._retries.is_due("loss", _AGAIN):
            return
        self.is_trying = True  # its passes through the outputs are nobody's gradients; the module has none
        try:
            with warnings.catch_warnings(), self._retries.timed("loss", again=tried >= _TRIED):
                # The backward pass itself will say this.
                warnings.filterwarnings("ignore", message="Full backward hook is firing", category=UserWarning)
                crosses = self._looks_at_others(recording, loss, outputs, again=tried >= _TRIED)
        finally:
            self._set_trying(False)
        if crosses:
            raise NotASum(
                "loss: expected a sum over examples; the gradient at one example's output changes with other "
                "examples, as in contrastive and ranking losses, in functions of the batch's loss, and with weights "
                "or counts of the batch (tokens that are not ignored). Compute a loss for each example from its own "
                f"outputs and targets, then their sum or mean. {ALONE}"
            )
        self._forms[its_form] = tried + (crosses is not None)

    def _looks_at_others(self, recording: Recording, loss: Tensor, outputs: list[Output], again: bool) -> bool | None:
        laid_out = [(o.tensor, o.layout) for o in outputs]
        try:
            return self._replay.looks_at_others(recording, loss, laid_out, self.rows, again=again)
        except CannotReplay as reason:
            if self._public_weights:
                return crossing(loss, laid_out, self.rows)
            raise NotASum(
                f"loss: whether it is a sum over examples could not be tried: {reason}. Write it with torch's own "
                "operations, and without changes in place of tensors that were there before; if nothing in it looks "
                "at more than one example, make_private(public_loss_weights=True) takes your word for it"
            ) from None


# Called when the compiled pass runs: an error while it is being compiled would end that, and nothing else.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _refuse_compiled() -> None:
    raise InvalidArgument("module", "compiled", "no torch.compile: what it computes is not watched")


def _watch_of_a_copy() -> Watch:
    """What the hooks of a copied or unpickled module belong to: it knows no module."""
    watch = object.__new__(Watch)
    watch.module, watch.is_trying, watch._outputs, watch._recording = None, False, [], None
    watch._descendants, watch._inside = Descendants(), Inside()
    watch._shards = Whole()
    return watch
