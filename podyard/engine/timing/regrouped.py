"""Simplifications that the TPU compiler makes of one device's program: sums over groups, and
products of two vectors.

An array that is only cut into groups to sum up over them (a group norm, a norm of flattened
gradients) keeps its own shape: axes that are summed up whole go first, and just their small sums
are cut into groups. So the large array is not copied into another layout. What is worked out from
it and the sums on the way stays in its shape, too. A product that sums up over all axes of both
sides is a sum of products. (Read off compiled group norms and clipped gradients.)

A function that is called at several places is simplified before it is put in place of its calls. So
what it is given in groups is cut for it, and copied: `jnp.var` is such a function, and a model with
two group norms of one shape calls it twice. (Read off 50 compiled chains of group norms.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

from podyard.engine.program.ir import Body, HloOperation, Program, TensorType, outer_values
from podyard.engine.timing.graph import CONTROL, ELEMENTWISE, SMALL_SIZE
from podyard.engine.timing.layout import whole_lanes

# What changes where numbers lie, among element-wise operations.
_MOVES = frozenset({
    "broadcast", "broadcast_in_dim", "concatenate", "dynamic_slice", "pad", "reshape", "reverse",
    "slice", "transpose",
})  # fmt: skip
_SAME_SHAPE = ELEMENTWISE - _MOVES


def regroup(program: Program) -> Program:
    """The program with these simplifications; the same object where there are none."""
    maker = _Simplifier(program)
    body = maker.simplify(program.body)
    return (
        program
        if body is program.body
        else dataclasses.replace(program, body=body, types=maker.types)
    )


class _Simplifier:
    def __init__(self, program: Program) -> None:
        self.types = list(program.types)

    def simplify(self, body: Body) -> Body:
        operations: list[HloOperation] = []
        changed = False
        for given in body.operations:
            operation = given.with_bodies(self.simplify) if given.opcode in CONTROL else given
            changed |= operation is not given
            sums = self._as_sum(operation)
            changed |= bool(sums)
            operations += sums or [operation]
        own = Body(body.parameters, operations, body.results) if changed else body
        return _Regrouping(self, own).body()

    def new(self, shape: Iterable[int], dtype: str) -> int:
        self.types.append(TensorType(tuple(shape), dtype))
        return len(self.types) - 1

    def _as_sum(self, product: HloOperation) -> list[HloOperation]:
        """A product whose result has no axis, as the sum of a product number by number."""
        if product.opcode != "dot_general" or self.types[product.results[0]].shape:
            return []
        left, right = (self.types[value] for value in product.operands[:2])
        if product.ints("lhs_contracting") != product.ints("rhs_contracting") or left != right:
            return []
        made = self.new(left.shape, self.types[product.results[0]].dtype)
        dims = tuple(range(len(left.shape)))
        return [
            HloOperation("multiply", product.operands[:2], (made,), {}, where=product.where),
            HloOperation(
                "reduce", (made,), product.results, {"dims": dims, "by": "add"}, where=product.where
            ),
        ]


class _Regrouping:
    """Finds arrays that are only cut into groups for a while, in one body."""

    def __init__(self, maker: _Simplifier, body: Body) -> None:
        self._maker = maker
        self._types = maker.types
        self._body = body
        self._makers = {value: step for step in body.operations for value in step.results}
        self._users: dict[int, list[HloOperation]] = {}
        for step in body.operations:
            for value in step.operands:
                self._users.setdefault(value, []).append(step)
        inner = (
            value for step in body.operations for one in step.bodies for value in outer_values(one)
        )
        self._kept = {*body.results, *inner}
        # What calls read instead of an array that they are given in groups.
        self._cut: dict[tuple[int, int], int] = {}

    def body(self) -> Body:
        replaced: dict[int, list[HloOperation]] = {}
        for step in self._body.operations:
            if step.opcode == "reshape" and id(step) not in replaced:
                replaced.update(self._group(step) or {})
        if not replaced:
            return self._body
        operations = [
            new
            for step in self._body.operations
            for new in replaced.get(id(step), [self._reads_cut(step)])
        ]
        return Body(self._body.parameters, operations, self._body.results)

    def _reads_cut(self, step: HloOperation) -> HloOperation:
        if not step.call or not self._cut:
            return step
        operands = tuple(self._cut.get((step.call, value), value) for value in step.operands)
        return step if operands == step.operands else dataclasses.replace(step, operands=operands)

    def _group(self, reshape: HloOperation) -> dict[int, list[HloOperation]] | None:
        """New operations for those that work on the regrouped array, by what they replace; None
        where one of them needs the groups."""
        own, other = (
            self._types[value].shape for value in (reshape.operands[0], reshape.results[0])
        )
        if math.prod(own) < SMALL_SIZE or len(own) < 2:
            return None
        factors, features = _Factors.of(own, other), self._features(reshape.operands[0])
        if factors is None or not factors.cuts(features):
            return None
        found = self._connected(reshape, other)
        if found is None or not any(step.opcode == "reduce" for step in found):
            return None
        if features != len(own) - 1 and any(self._called_with(step, other) for step in found):
            return None
        new: dict[int, list[HloOperation]] = {}
        for step in found:
            instead = self._remade(step, own, other, factors)
            if instead is None:
                return None
            new[id(step)] = instead
        grouped = [
            value for step in found for value in step.results if self._types[value].shape == other
        ]
        for step in found:
            for value in set(step.results).intersection(grouped):
                for call in {
                    user.call for user in self._users.get(value, ()) if user.call != step.call
                }:
                    new[id(step)] = [*new[id(step)], *self._cut_for(call, value, own, step)]
        for value in grouped:
            self._types[value] = TensorType(own, self._types[value].dtype)
        return new

    def _features(self, value: int) -> int:
        """The axis of an array that lies in lanes: of what a convolution makes, its features; else
        the last."""
        shape = self._types[value].shape
        maker = self._makers.get(value)
        while maker is not None and maker.opcode != "convolution":
            alike = (one for one in maker.operands if self._types[one].shape == shape)
            maker = self._makers.get(next(alike, -1)) if maker.opcode in _SAME_SHAPE else None
        return len(shape) - 1 if maker is None else maker.ints("out_dims")[1]

    def _called_with(self, step: HloOperation, other: tuple[int, ...]) -> bool:
        """Return whether a function that is called at several places reads what the step makes in
        groups."""
        grouped = (value for value in step.results if self._types[value].shape == other)
        return any(
            user.call != step.call for value in grouped for user in self._users.get(value, ())
        )

    def _cut_for(
        self, call: int, value: int, own: tuple[int, ...], maker: HloOperation
    ) -> list[HloOperation]:
        """The array as a function is given it: copied with that axis in lanes that fills them best
        (features of a
        group, the last axis of an image, or examples), and cut into groups then. A cut of other
        axes than those in lanes is another pass over it, to which the compiler gives no cycles."""
        type_ = self._types[value]
        other, dtype = type_.shape, type_.dtype
        padding = {
            place: whole_lanes(extent) / extent
            for place, extent in ((2, other[-1]), (1, own[-2]), (0, own[0]))
        }
        best = max(padding, key=lambda place: (-padding[place], place))
        copied = cut = TensorType(own, dtype)
        if best == 0:
            copied = TensorType((whole_lanes(own[0]), *own[1:]), dtype)
            cut = TensorType((copied.shape[0], *other[1:]), dtype)
        elif best == 1:
            copied, cut = TensorType((*own[:-2], own[-1], whole_lanes(own[-2])), dtype), type_
        else:
            cut = TensorType((*other[:-1], whole_lanes(other[-1])), dtype)
        made = [self._maker.new(one.shape, dtype) for one in (copied, cut)]
        self._cut[call, value] = made[1]
        for inner in self._inside(call, value, other):
            self._types[inner] = TensorType(cut.shape, self._types[inner].dtype)
        steps = ("turned" if best == 1 else "copied", "named" if best == 0 else "cut")
        value = maker.operands[0] if maker.opcode == "convert" else value
        return [
            HloOperation("reshape", (source,), (result,), {"step": step}, where=maker.where)
            for source, result, step in zip((value, made[0]), made, steps, strict=True)
        ]

    def _inside(self, call: int, value: int, other: tuple[int, ...]) -> set[int]:
        """The arrays in groups that a call makes from one; none where it does more than to sum them
        up."""
        found, stack = set[int](), [value]
        while stack:
            for user in self._users.get(stack.pop(), ()):
                if user.call != call or user.opcode == "reduce":
                    continue
                if user.opcode not in _SAME_SHAPE or self._kept.intersection(user.results):
                    return set()
                stack += [made for made in user.results if made not in found]
                found.update(user.results)
        spread = [
            one
            for one in self._body.operations
            if one.call == call and one.opcode == "broadcast_in_dim"
        ]
        return found | {
            one.results[0] for one in spread if self._types[one.results[0]].shape == other
        }

    def _connected(
        self, reshape: HloOperation, other: tuple[int, ...]
    ) -> list[HloOperation] | None:
        """The operations that make or read arrays of the `other` shape, from `reshape` on, but for
        those of calls that read them; None where one of those arrays leaves the body, comes from
        outside or from such a call."""
        found: dict[int, HloOperation] = {}
        stack = [reshape]
        while stack:
            step = stack.pop()
            if id(step) in found:
                continue
            found[id(step)] = step
            grouped = [
                value
                for value in (*step.operands, *step.results)
                if self._types[value].shape == other
            ]
            for value in grouped:
                maker = self._makers.get(value)
                if maker is None or value in self._kept or maker.call != reshape.call:
                    return None
                stack += [
                    maker,
                    *(user for user in self._users.get(value, ()) if user.call == reshape.call),
                ]
        places = {id(step): place for place, step in enumerate(self._body.operations)}
        return sorted(found.values(), key=lambda step: places[id(step)])

    def _remade(
        self, step: HloOperation, own: tuple[int, ...], other: tuple[int, ...], factors: _Factors
    ) -> list[HloOperation] | None:
        shapes = [self._types[value].shape for value in step.operands]
        made = [self._types[value].shape for value in step.results]
        if step.opcode == "reshape" and {*shapes, *made} == {own, other}:
            return [step]
        if step.opcode == "constant" and made == [other]:
            return [step]
        if step.opcode in _SAME_SHAPE and made == [other]:
            return [step] if all(shape == other or not shape for shape in shapes) else None
        if step.opcode == "broadcast_in_dim" and made == [other]:
            return self._spread(step, own, factors)
        if step.opcode == "reduce" and len(made) == 1 and shapes[0] == other:
            return self._sum(step, own, factors)
        return None

    def _spread(
        self, step: HloOperation, own: tuple[int, ...], factors: _Factors
    ) -> list[HloOperation] | None:
        """Return what is repeated over groups is repeated within each axis that is cut, which has
        its own size again then."""
        given = self._types[step.operands[0]]
        if given.size * 2 > math.prod(own):
            return None
        wanted: list[int] = []  # factors, in the order of the axes that are given
        shape: list[int] = []
        for axis, extent in zip(step.ints("dims"), given.shape, strict=True):
            if extent == 1:
                continue
            wanted += factors.of_other[axis]
            shape += [factors.sizes[one] for one in factors.of_other[axis]]
        if not wanted:
            return (
                [dataclasses.replace(step, attributes={**step.attributes, "dims": ()})]
                if not given.shape
                else None
            )
        axes = [axis for axis, inside in enumerate(factors.of_own) if set(inside) & set(wanted)]
        if sorted(wanted) != wanted:
            return None
        parts = [one for axis in axes for one in factors.of_own[axis]]
        made: list[HloOperation] = []
        value = step.operands[0]
        if list(given.shape) != shape:
            value = self._add(made, "reshape", value, shape, {}, step)
        if parts != wanted:
            dims = tuple(parts.index(one) for one in wanted)
            whole = [factors.sizes[one] for one in parts]
            value = self._add(made, "broadcast_in_dim", value, whole, {"dims": dims}, step)
        sizes = [own[axis] for axis in axes]
        if list(self._types[value].shape) != sizes:
            value = self._add(made, "reshape", value, sizes, {}, step)
        made.append(
            dataclasses.replace(
                step, operands=(value,), attributes={**step.attributes, "dims": tuple(axes)}
            )
        )
        return made

    def _sum(
        self, step: HloOperation, own: tuple[int, ...], factors: _Factors
    ) -> list[HloOperation] | None:
        """Axes that are summed up whole, then what is left of those that are cut."""
        gone = {one for axis in step.ints("dims") for one in factors.of_other[axis]}
        whole = tuple(axis for axis, inside in enumerate(factors.of_own) if gone.issuperset(inside))
        if not whole:
            return None
        result, dtype = step.results[0], self._types[step.results[0]].dtype
        left = [axis for axis in range(len(own)) if axis not in whole]
        parts = [one for axis in left for one in factors.of_own[axis]]
        rest = tuple(place for place, one in enumerate(parts) if one in gone)
        if not rest and [own[axis] for axis in left] == list(self._types[result].shape):
            return [dataclasses.replace(step, attributes={**step.attributes, "dims": whole})]
        made: list[HloOperation] = []
        first = self._maker.new((own[axis] for axis in left), dtype)
        made.append(
            dataclasses.replace(
                step, results=(first,), attributes={**step.attributes, "dims": whole}
            )
        )
        value = self._add(made, "reshape", first, [factors.sizes[one] for one in parts], {}, step)
        small = (
            self._maker.new((factors.sizes[one] for one in parts if one not in gone), dtype)
            if rest
            else value
        )
        if rest:
            operands = (value, *step.operands[1:])
            attributes = {**step.attributes, "dims": rest}
            made.append(
                dataclasses.replace(
                    step, operands=operands, results=(small,), attributes=attributes
                )
            )
        made.append(HloOperation("reshape", (small,), (result,), {}, where=step.where))
        return made

    def _add(
        self, made: list[HloOperation], opcode: str, value: int, shape: list[int],
        attributes: dict[str, object],
        step: HloOperation,
    ) -> int:  # fmt: skip
        result = self._maker.new(shape, self._types[value].dtype)
        made.append(HloOperation(opcode, (value,), (result,), attributes, where=step.where))
        return result


@dataclasses.dataclass(frozen=True, slots=True)
class _Factors:
    """The sizes that two shapes of one array are products of, and which of them each axis has."""

    sizes: tuple[int, ...]
    of_own: tuple[tuple[int, ...], ...]
    of_other: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, own: tuple[int, ...], other: tuple[int, ...]) -> _Factors | None:
        """None where an axis of one is not made of whole axes, or whole parts of one axis, of the
        other."""
        ends = sorted({*_ends(own), *_ends(other)})
        if any(after % before for before, after in zip([1, *ends], ends, strict=False)):
            return None
        sizes = tuple(after // before for before, after in zip([1, *ends], ends, strict=False))
        return cls(sizes, tuple(_inside(own, ends)), tuple(_inside(other, ends)))

    def cuts(self, axis: int) -> bool:
        """Return whether an axis is cut, or joined with another."""
        return self.of_own[axis] not in self.of_other


def _ends(shape: tuple[int, ...]) -> Iterator[int]:
    total = 1
    for extent in shape:
        total *= extent
        yield total


def _inside(shape: tuple[int, ...], ends: list[int]) -> Iterator[tuple[int, ...]]:
    total = 1
    for extent in shape:
        before, total = total, total * extent
        yield tuple(place for place, end in enumerate(ends) if before < end <= total)
