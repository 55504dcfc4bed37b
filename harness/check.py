"""One case's problem: guarded inputs and output, the float64 answer, and what may deviate from it.

Outputs are poisoned before the run that is judged, inputs and their guards are compared bit for
bit after it, guard bytes around the output must survive; verdict.py judges the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .guards import GuardedInput, GuardedOutput, shares_memory
from .spec import Case, OpSpec, Tensors, torch_dtype
from .verdict import Comparison, Verdict, compare, refused

if TYPE_CHECKING:
    import torch

__all__ = ["Problem", "Verdict", "allowance", "bias_allowance", "compare"]


class Problem:
    """One case's inputs, float64 answer and guarded output, shared by all implementations."""

    def __init__(self, spec: OpSpec, case: Case, dtype: str, device: str, seed: int) -> None:
        self.spec, self.case, self.dtype, self.device = spec, case, dtype, device
        given = spec.make_inputs(case, dtype, device, seed)
        # Popped, so that no more than one input is held twice.
        self._inputs = {name: GuardedInput(given.pop(name)) for name in list(given)}
        self.tensors: Tensors = {name: guarded.tensor for name, guarded in self._inputs.items()}
        element = torch_dtype(dtype)
        # One element in where the case asks for views that start one element in.
        lead = element.itemsize if case.layout == "offset1" else 0
        self._output = GuardedOutput(spec.output_shape(case), element, lead, device)
        self.out = self._output.tensor
        self.poison()
        self._remember_answer()

    def _remember_answer(self) -> None:
        for guarded in self._inputs.values():
            guarded.remember()
        # Both stay alive as long as the problem: a freed reference could be handed by the
        # allocator to an implementation that then passes by returning uninitialised memory.
        self.reference = self.spec.reference(self.tensors)
        self.allowed = allowance(self.spec, self.dtype, self.tensors, self.reference)

    def reseed(self, seed: int) -> None:
        """New values in place: bound closures keep their pointers but must not their answers."""
        del self.reference, self.allowed  # room for their successors
        for guarded in self._inputs.values():
            guarded.forget()
        fresh = self.spec.make_inputs(self.case, self.dtype, self.device, seed)
        for name, tensor in self.tensors.items():
            tensor.copy_(fresh.pop(name))
        self._remember_answer()

    def nudge(self, seed: int) -> None:
        """A few values change sign in place: what knows its inputs by a sample of them shows."""
        import torch

        del self.reference, self.allowed
        generator = torch.Generator(device=self.device).manual_seed(seed)
        for name, tensor in self.tensors.items():
            self._inputs[name].forget()
            if tensor.numel() and tensor.is_floating_point():
                n_chosen = 1 + tensor.numel() // 1024
                chosen = torch.randint(
                    tensor.numel(), (n_chosen,), generator=generator, device=self.device
                )
                where = torch.unravel_index(chosen, tensor.shape)
                tensor[where] = -tensor[where]
        self._remember_answer()

    def poison(self) -> None:
        self._output.poison()

    def restore_inputs(self) -> list[str]:
        """What happened to the inputs, a clause each kind; they are put right again.

        All of them, or the next implementation would be judged on the damage of another.
        """
        damaged: dict[str, list[str]] = {"values": [], "guards": []}
        for name, guarded in self._inputs.items():
            damage = guarded.damage()
            if damage:
                damaged[damage].append(name)
                guarded.restore()
        texts = {
            "values": "input {} was changed",
            "guards": "wrote into the guards around input {}",
        }
        return [texts[kind].format(", ".join(names)) for kind, names in damaged.items() if names]

    def judge(self, produced: torch.Tensor, unfused: bool = False) -> Verdict:
        """The verdict on `produced`, which is `out` or the fresh tensor a baseline returned.

        `unfused` grants the roundings between the kernels of a torch expression.
        """
        changed = self.restore_inputs()
        if changed:
            return refused("; ".join(changed))
        reason = self._wrong_kind(produced)
        if reason:
            return refused(reason)
        side = self._output.damage()
        if side:
            return refused(f"wrote into the guard bytes {side} the output")
        return compare(produced, self.reference, *self._limits(unfused))

    def explain(self, produced: torch.Tensor, unfused: bool = False) -> dict[str, Any]:
        """The numbers behind `judge`'s verdict, as JSON; empty where there is none to compare."""
        if self._wrong_kind(produced) or produced.numel() == 0:
            return {}
        if produced.shape != self.reference.shape:
            return {}
        return Comparison(produced, self.reference, *self._limits(unfused)).explanation()

    def _wrong_kind(self, produced: Any) -> str:
        """Why `produced` is not an output of this case whatever its values; empty when it is."""
        import torch

        if not isinstance(produced, torch.Tensor):
            return f"returned a {type(produced).__name__}, wanted a tensor"
        if produced.device != self.out.device:
            return f"output on {produced.device}, wanted {self.out.device}"
        if produced.dtype != self.out.dtype:
            return f"dtype {produced.dtype}, wanted {self.out.dtype}"
        if produced.shape == self.out.shape and not produced.is_contiguous():
            return f"strides {produced.stride()}, wanted {self.out.stride()}: other memory traffic"
        for name, tensor in self.tensors.items():
            if shares_memory(produced, tensor):
                return f"returned the memory of input {name}, wanted an output of its own"
        return ""

    def _limits(self, unfused: bool) -> tuple[torch.Tensor, float, bool]:
        """(allowed, bias_ulps, signed_zeros) of Comparison."""
        return (
            self.allowed + (self._between_kernels() if unfused else 0.0),
            bias_allowance(self.spec, self.dtype, self.case),
            self.spec.special_values.signed_zeros == "kept",
        )

    def _between_kernels(self) -> torch.Tensor | float:
        import torch

        if self.spec.unfused_rounding is None:
            return 0.0
        half_ulp = 0.5 * torch.finfo(torch_dtype(self.dtype)).eps
        return half_ulp * self.spec.unfused_rounding(self.tensors)


def allowance(spec: OpSpec, dtype: str, tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """Allowed |error| of each element, float64, by the rule of `Tolerance`."""
    import torch

    info, float32 = torch.finfo(torch_dtype(dtype)), torch.finfo(torch.float32)
    # The spacing of numbers is proportional to them, but constant below the smallest normal one.
    spacing = info.eps * reference.abs().clamp(min=info.smallest_normal)
    allowed = spacing.mul_(spec.tolerances[dtype].output_ulps)
    allowed += float32.eps * spec.accumulation(tensors, reference)
    if spec.special_values.subnormals == "flushed":
        allowed += float32.smallest_normal
    return allowed


def bias_allowance(spec: OpSpec, dtype: str, case: Case) -> float:
    """Bias in ulps of the output, beyond sampling noise, by the rule of `Tolerance`."""
    import torch

    shared = spec.drift(case) * torch.finfo(torch.float32).eps
    return spec.tolerances[dtype].bias_ulps + shared / torch.finfo(torch_dtype(dtype)).eps
