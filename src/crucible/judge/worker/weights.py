"""A candidate's weights as the reference has them: loaded under the reference's names, gradients told under them."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from crucible.judge.worker.pairing import BY_NAME, Place, Weight, can_hold, pair

Told = list[tuple[str, bool, str]]
"""Of each of the reference's weights: name, whether it is a parameter, the first name of the one it is tied to."""


NOTHING_COPIED: dict[str, Any] = {"only_in_reference": [], "only_in_candidate": [], "held": [], "paired": [], "ways": 1}
"""What is said of weights that are left as the candidate seeded them."""


@dataclass(frozen=True)
class Computed:
    """A weight that a module computes from others whenever it is used: a parametrization, or weight norm's hook."""

    name: str
    module: torch.nn.Module
    attribute: str
    made_of: tuple[str, ...]
    """Names of what it is computed from."""
    hook: Any = None
    """Weight norm's, where it is one of the old form."""

    @property
    def value(self) -> torch.Tensor:
        value = self.hook.compute_weight(self.module) if self.hook else getattr(self.module, self.attribute)
        return torch.as_tensor(value).detach()

    def assign(self, value: torch.Tensor) -> None:
        """Has it compute that value; where a parametrization of one tensor has no way back, compute it from that."""
        if self.hook is None:
            try:
                setattr(self.module, self.attribute, value)
            except (RuntimeError, NotImplementedError):
                self.module.parametrizations[self.attribute].original.copy_(value)  # type: ignore[index, union-attr]
            return
        getattr(self.module, f"{self.attribute}_v").copy_(value)
        norm = torch.norm_except_dim(value, 2, self.hook.dim)
        getattr(self.module, f"{self.attribute}_g").copy_(norm)

    def note(self, made: list[torch.Tensor]) -> RemovableHandle:
        """From now on, adds to `made` what it is computed to."""
        if self.hook is not None:  # weight norm's own hook came first
            return self.module.register_forward_pre_hook(lambda *_: made.append(getattr(self.module, self.attribute)))
        chain = self.module.get_submodule(f"parametrizations.{self.attribute}")
        return chain.register_forward_hook(lambda *called: made.append(called[-1]))


@dataclass(frozen=True)
class Known:
    """One way of pairing, by names."""

    places: dict[str, Place]
    lost: tuple[str, ...]
    """The reference's without a counterpart."""
    left: tuple[str, ...]
    """The candidate's without one."""
    held: tuple[str, ...]
    """Of the lost, those that something left can hold, in a form that is not known."""


class Weights:
    """One module's weights beside those of the reference."""

    def __init__(self, model: torch.nn.Module, reference: dict[str, torch.Tensor], told: Told) -> None:
        """`reference`: its state as constructed, as the module's still is."""
        self.model = model
        self.names = tuple(model.state_dict())
        self._like = {name: (tuple(value.shape), value.dtype) for name, value in reference.items()}
        self._tied_to = {name: first for name, _, first in told}  # in the reference's order
        self._learned = {name for name, learned, _ in told if learned}
        self._computes = list(self._computed())
        self._ways = self._paired(reference)
        self._way = 0
        placed = [{place.own for place in way.places.values()} for way in self._ways]
        unsure = frozenset[str]().union(*placed) - frozenset(placed[0]).intersection(*placed)
        state = model.state_dict()
        self._seeded = {name: state[name].detach().clone() for name in unsure & set(state)}
        """What not every way of pairing gives a value."""

    def load(self, state: dict[str, torch.Tensor], way: int | None = None) -> dict[str, Any]:
        """Writes the reference's state into the module's, and says what had no counterpart and what was paired how.

        `way`: which of the ways of pairing what only its order tells apart; None is the last one's.
        """
        self._way = self._way if way is None else min(way, len(self._ways) - 1)
        computed = {one.name: one for one in self._computes}
        with torch.no_grad():
            written = self.in_own(state)
            self.model.load_state_dict(written, strict=False)
            for name, place in self._known.places.items():
                if place.own in computed:
                    value = torch.empty_like(computed[place.own].value)
                    place.put(value, state[name])
                    computed[place.own].assign(value)
        return {
            "only_in_reference": list(self._known.lost),
            "only_in_candidate": list(self._known.left),
            "held": list(self._known.held),
            "paired": [place.words(n) for n, place in self._known.places.items() if _is_worth_telling(place)],
            "ways": len(self._ways),
        }

    def in_own(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The reference's state in the module's names and layouts, without what the module computes; what this way of
        pairing leaves alone is as seeded."""
        own, computed = self.model.state_dict(), {one.name for one in self._computes}
        placed = {place.own for place in self._known.places.values()}
        written = {name: value for name, value in self._seeded.items() if name not in placed}
        for name, place in self._known.places.items():
            if place.own in computed:
                continue
            plain = place.is_plain and own[place.own].shape == state[name].shape
            written[place.own] = state[name] if plain else written.get(place.own, own[place.own].detach().clone())
            if not plain:
                place.put(written[place.own], state[name])
        return written

    def whole(self) -> dict[str, str]:
        """The module's names for those of the reference's weights that it holds as the reference does."""
        own, places = self.model.state_dict(), self._known.places
        there = {name: place.own for name, place in places.items() if place.is_plain and place.own in own}
        return {name: held for name, held in there.items() if tuple(own[held].shape) == self._like[name][0]}

    def own_name(self, name: str) -> str:
        """The candidate's name for a weight of the reference that lies there as it is; else that name itself."""
        place = self._known.places.get(name)
        return place.own if place and place.is_plain else name

    def gradients(self, own: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Gradients by the reference's names, shapes and dtypes, of those by the candidate's; what is no parameter
        (`input[0]`) stays. A weight that the reference ties has one: the sum over what its names have here."""
        holders = {**self._holders(), **{one.name: one.name for one in self._computes}}
        found = {name: gradient for name, gradient in own.items() if name not in holders}
        seen: set[tuple[Any, ...]] = set()
        for name, place in self._known.places.items():
            first, holder = self._tied_to[name], holders.get(place.own, "")
            if first not in self._learned or holder not in own or (first, holder, place.at) in seen:
                continue
            seen.add((first, holder, place.at))
            shape, dtype = self._like[first]
            gradient = place.taken(own[holder], shape).to(dtype)
            found[first] = found[first] + gradient if first in found else gradient
        return found

    @contextlib.contextmanager
    def noting(self) -> Iterator[dict[str, list[torch.Tensor]]]:
        """By the module's name of each weight that it computes, what those were that it computed in this block."""
        made: dict[str, list[torch.Tensor]] = {one.name: [] for one in self._computes}
        with contextlib.ExitStack() as stack:
            for one in self._computes:
                stack.callback(one.note(made[one.name]).remove)
            yield made

    def computed(self) -> list[str]:
        """Parameters of the reference that are computed from others here."""
        computed = {one.name for one in self._computes}
        behind = {self._tied_to[name] for name, place in self._known.places.items() if place.own in computed}
        return sorted(behind & self._learned)

    def not_comparable(self, gradients: Container[str]) -> list[str]:
        """Parameters of the reference whose gradients cannot be told: what holds them here is not known, or what was
        computed for them had no gradient, since the module may use what it is computed from."""
        unseen = {name for name in self.computed() if name not in gradients}
        return sorted((unseen | set(self._known.held)) & self._learned)

    @property
    def _known(self) -> Known:
        return self._ways[self._way]

    def _paired(self, reference: dict[str, torch.Tensor]) -> list[Known]:
        holders, known = self._holders(), []
        own = {weight.name: weight for weight in self._own(reference)}
        device = next(iter(own.values())).value.device if own else torch.device("cpu")
        in_order = [name for name in self._tied_to if name in reference]
        names = _untied(in_order, self._tied_to, own)
        theirs = [Weight(name, reference[name].to(device), name in self._learned) for name in names]
        for way in pair(theirs, [own[name] for name in _untied(own, holders, reference)]):
            placed = {self._tied_to[name] for name in way.places}
            used = {holders.get(place.own, place.own) for place in way.places.values()}
            lost = [weight for weight in way.lost if self._tied_to[weight.name] not in placed]
            left = [weight for weight in way.left if holders.get(weight.name, weight.name) not in used]
            held = (weight.name for weight in lost if any(can_hold(one, weight) for one in left))
            known.append(Known(way.places, _names(lost), _names(left), tuple(sorted(held))))
        return known

    def _own(self, reference: dict[str, torch.Tensor]) -> list[Weight]:
        """Of the module as it was constructed: its state, with what is computed in place of what it is computed from.

        A parametrization that the reference has too stays as it is, and so does one whose tensor holds the reference's
        value and is computed into another: there the reference computes that in its forward.
        """
        learned = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        found = {name: value.detach() for name, value in self.model.state_dict().items()}
        chosen = []
        for one in self._computes:
            value, before = one.value, found[one.made_of[0]]
            raw = any(_same(theirs, before) for theirs in reference.values()) and not _same(value, before)
            if any(name in reference for name in one.made_of) or (len(one.made_of) == 1 and raw):
                continue
            chosen.append(one)
            learned |= {one.name} if learned & set(one.made_of) else set()
            found = {name: tensor for name, tensor in found.items() if name not in one.made_of} | {one.name: value}
        self._computes = chosen
        return [Weight(name, value, name in learned) for name, value in found.items()]

    def _computed(self) -> Iterator[Computed]:
        for path, module in self.model.named_modules():
            lead = f"{path}." if path else ""
            for attribute, originals in _parametrized(module):
                names = tuple(f"{lead}parametrizations.{attribute}.{original}" for original in originals)
                yield Computed(f"{lead}{attribute}", module, attribute, names)
            for hook in module._forward_pre_hooks.values():
                if type(hook).__name__ == "WeightNorm" and hasattr(module, f"{getattr(hook, 'name', '')}_v"):
                    names = (f"{lead}{hook.name}_g", f"{lead}{hook.name}_v")
                    yield Computed(f"{lead}{hook.name}", module, hook.name, names, hook)

    def _holders(self) -> dict[str, str]:
        """The first name of the parameter behind each name: tied ones have several."""
        first: dict[int, str] = {}
        named = self.model.named_parameters(remove_duplicate=False)
        return {name: first.setdefault(id(parameter), name) for name, parameter in named}


_MORE = "\0"
"""Behind the name of a weight that is computed more than once in a forward: no module's names hold it."""


def apart(made: dict[str, list[torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Each tensor that autograd knows, once, under a name of its own."""
    found = {}
    for name, tensors in made.items():
        once = {id(tensor): tensor for tensor in tensors if tensor.requires_grad}.values()
        found.update({name + _MORE * number: tensor for number, tensor in enumerate(once)})
    return found


def added_up(gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The gradients of what was set apart, each weight's in one."""
    found: dict[str, torch.Tensor] = {}
    for name, gradient in gradients.items():
        own = name.rstrip(_MORE)
        found[own] = found[own] + gradient if own in found else gradient
    return found


def _names(weights: list[Weight]) -> tuple[str, ...]:
    return tuple(sorted(weight.name for weight in weights))


def _untied(names: Iterable[str], tied_to: dict[str, str], known: Container[str]) -> list[str]:
    """Of names that stand for one weight those that the other side knows, or else the first."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(tied_to.get(name, name), []).append(name)
    return [name for group in groups.values() for name in ([n for n in group if n in known] or group[:1])]


def _is_worth_telling(place: Place) -> bool:
    return place.how != BY_NAME or not place.is_plain


def _parametrized(module: torch.nn.Module) -> Iterator[tuple[str, list[str]]]:
    """Each tensor that a parametrization computes, with the names of what it is computed from."""
    if not parametrize.is_parametrized(module):
        return
    for attribute, chain in module.parametrizations.items():  # type: ignore[union-attr, operator]
        with contextlib.suppress(AttributeError):
            originals = ["original"] if chain.is_tensor else [f"original{i}" for i in range(chain.ntensors)]
            yield attribute, originals


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other.to(one))
