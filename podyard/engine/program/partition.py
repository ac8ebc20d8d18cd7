"""One device's program from a global one, with the collectives between devices, as XLA's SPMD
partitioner makes it.

Shardings are propagated first (`propagation.py`). Every operation then computes its part of its
result: operands are brought to the sharding that its factors want (`reshard.py`); what is summed up
over a split dimension is a partial sum on every device, which an `all_reduce` completes, or a
`reduce_scatter` where the result is split along the same axis. A collective says along which axes
of the mesh devices exchange (`axes`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from podyard.engine.program.collective_passes import Links, improve
from podyard.engine.program.doubts import Doubt
from podyard.engine.program.factors import Factor, Rule, has_rule, rule_of
from podyard.engine.program.ir import Body, HloOperation, Program, TensorType
from podyard.engine.program.propagation import dimension_axes, factor_axes, result_value
from podyard.engine.program.reshard import Dims, loses_split, moves, shared_axes
from podyard.engine.program.shardings import PLACED, Axes, Sharding
from podyard.engine.program.spreads import Spread, spread_of
from podyard.engine.program.sums import scatter_into_sums

# Operations of which each device runs its own, whatever their operands.
_CONTROL = ("while", "case", "if")
_LOOK_UPS = ("gather", "scatter")
_PRODUCTS = ("dot_general", "convolution", *_LOOK_UPS)
# Known numbers are made again for another split if that takes so many steps at most; a table of
# positions takes ten.
_KNOWN_STEPS = 64
_SPREADING = ("broadcast_in_dim", "reshape", "transpose")
# How the front-ends name what adds up.
_ADDING = ("", "add", "reduce_sum")
_ALONE = Links()


def partition(program: Program, links: Links = _ALONE) -> Program:
    """`program` for one of the devices of its mesh."""
    if program.mesh.devices == 1:
        program = scatter_into_sums(program)
        own = dataclasses.replace(
            program, partitions=1, shardings={}, result_shardings={}, donated={**program.donated}
        )
    else:
        spread = spread_of(program)
        own = _Partitioner(spread.simplified, spread).run(links)
    own.give_away()
    return own


class _Partitioner:
    def __init__(self, program: Program, spread: Spread) -> None:
        self.program = program
        self.mesh = program.mesh
        self.dims = {value: list(dims) for value, dims in spread.dims.items()}
        self.rules = spread.rules
        self.global_types = list(program.types)
        self.types = list(program.types)
        self.doubts: list[Doubt] = []
        # Values that were brought to another sharding already, in this body or around it.
        self.moved: dict[tuple[int, Dims], int] = {}
        self.operations: list[HloOperation] = []
        self.makers: dict[int, HloOperation] = {}
        # See `_note`: values, and in how many steps they are worked out.
        self.known: dict[int, int] = {}
        # How operands and results of the operation at hand lie on their way to where they are
        # wanted.
        self.detours: dict[int, Dims] = {}

    def run(self, links: Links) -> Program:
        for value in range(len(self.global_types)):
            if value in self.dims:
                self.types[value] = self.local(value, self._dims(value))
        body = self._body(self.program.body, None)
        for place, value in enumerate(body.results):
            wanted = self.dims.get(result_value(place))
            if place in self.program.result_shardings:
                closed = self.program.result_shardings[place]
                body.results[place] = self._bring(
                    value, tuple(wanted or closed.dims), body.operations, "result"
                )
        doubts = [*self.program.doubts, *self.doubts]
        made = Program(
            body,
            self.types,
            mesh=self.mesh,
            donated=dict(self.program.donated),
            donors=self.program.donors,
        )
        made.doubts = doubts
        improve(made, links)
        return made

    # --- types

    def _dims(self, value: int) -> Dims:
        found = self.dims.get(value)
        return tuple(found) if found is not None else ((),) * len(self.global_types[value].shape)

    def local(self, value: int, dims: Dims) -> TensorType:
        """The part of one device; a dimension that does not divide is rounded up, as padding
        does."""
        type_ = self.global_types[value]
        shape = tuple(
            -(-size // self.mesh.extent(axes)) for size, axes in zip(type_.shape, dims, strict=True)
        )
        return TensorType(shape, type_.dtype)

    def _new_value(self, of: int, dims: Dims) -> int:
        """Another copy of a value, with its own sharding."""
        self.global_types.append(self.global_types[of])
        self.types.append(self.local(of, dims))
        value = len(self.types) - 1
        if any(dims):
            self.dims[value] = list(dims)
        return value

    def _set_dims(self, value: int, dims: Dims) -> None:
        self.dims.pop(value, None)
        if any(dims):
            self.dims[value] = list(dims)
        self.types[value] = self.local(value, dims)

    # --- operations

    def _body(self, body: Body, wanted: Sequence[Dims] | None) -> Body:
        """`wanted`: how the results are to lie."""
        around, outer = self.moved, self.operations
        self.moved, self.operations = around.copy(), []
        for operation in body.operations:
            self._note(operation)
            self._operation(operation)
        results = list(body.results)
        if wanted is not None:
            results = [
                self._bring(value, dims, self.operations, "loop")
                for value, dims in zip(results, wanted, strict=True)
            ]
        made = Body(list(body.parameters), self.operations, results)
        self.moved, self.operations = around, outer
        return made

    def _operation(self, operation: HloOperation) -> None:
        if operation.opcode in _CONTROL and operation.bodies:
            self._control(operation)
        elif operation.opcode == "shard":
            placed = operation.attributes.get(PLACED)
            dims = self._manual_dims(placed, operation.operands[0], operation.results[0])
            operand = self._bring(operation.operands[0], dims, self.operations, operation.where)
            self.operations.append(dataclasses.replace(operation, operands=(operand,)))
            self.types[operation.results[0]] = self.types[operand]
        elif operation.opcode == "unshard":
            self.types[operation.results[0]] = self.types[operation.operands[0]]
            self._keep(operation)
        elif any(value in self.dims for value in (*operation.operands, *operation.results)):
            self._split(operation)
        else:
            self._keep(operation)

    def _keep(self, operation: HloOperation) -> None:
        """As it is; a copy, because what follows changes operations in place."""
        self.operations.append(dataclasses.replace(operation))

    def _manual_dims(self, placed: object, outer: int, inner: int) -> Dims:
        """Return how an array is to lie for a manual computation: along its manual axes, and
        further as it is used there."""
        given = placed.dims if isinstance(placed, Sharding) else self._dims(outer)
        manual = placed.manual if isinstance(placed, Sharding) else ()
        return tuple(
            tuple(axis for axis in axes if axis in manual) + own
            for axes, own in zip(given, self._dims(inner), strict=True)
        )

    def _split(self, operation: HloOperation) -> None:
        operands, results = operation.operands, operation.results
        dims = [self._dims(value) for value in (*operands, *results)]
        rule = self.rules.get(id(operation))
        if rule is None:
            shapes = [self.global_types[value].shape for value in (*operands, *results)]
            rule = rule_of(operation, shapes[: len(operands)], shapes[len(operands) :])
        if rule.is_same and dims.count(dims[0]) == len(dims):
            self._keep(operation)
            return
        found, sums = self._choose(operation, rule, dims)
        on_way_back = {value: self.detours.pop(value) for value in results if value in self.detours}
        for value, by in self.detours.items():
            on_the_way = self._bring(value, by, self.operations, operation.where, operation)
            operands = tuple(on_the_way if one == value else one for one in operands)
        self.detours.clear()
        taken = [
            self._bring(
                value, self._need(rule, tensor, found), self.operations, operation.where, operation
            )
            for tensor, value in enumerate(operands)
        ]
        self._exchange_edges(operation, rule, found, taken)
        computed = [self._need(rule, len(operands) + place, found) for place in range(len(results))]
        made = [
            value
            if not sums and dims[len(operands) + place] == computed[place]
            else self._new_value(value, computed[place])
            for place, value in enumerate(results)
        ]
        moved = dataclasses.replace(operation, operands=tuple(taken), results=tuple(made))
        self._localise(moved)
        self.operations.append(moved)
        if sums and operation.opcode == "reduce" and len(made) > 1:
            made, sums = self._reduce_again(moved, made, sums), ()
        for value, part in zip(results, made, strict=True):
            if part != value:
                self._complete(part, value, sums, operation, on_way_back.get(value))

    def _reduce_again(self, operation: HloOperation, parts: Sequence[int], sums: Axes) -> list[int]:
        """Of several arrays that are reduced together (a maximum and its place) there is no sum
        over devices: all get the parts of all."""
        gathered, made = list[int](), list[int]()
        for part in parts:
            dims = self._dims(part)
            all_parts = self._collective(
                "all_gather", part, dims, sums, operation.where, dim=len(dims)
            )
            type_ = self.types[all_parts]
            self.types[all_parts] = TensorType((*type_.shape, self.mesh.extent(sums)), type_.dtype)
            gathered.append(all_parts)
            made.append(self._new_value(part, dims))
        over = {**operation.attributes, "dims": (len(self.types[made[0]].shape),)}
        initial = operation.operands[len(parts) :]
        self.operations.append(
            dataclasses.replace(
                operation, operands=(*gathered, *initial), results=tuple(made), attributes=over
            )
        )
        return made

    def _need(self, rule: Rule, tensor: int, found: dict[int, Axes]) -> Dims:
        return tuple(
            dimension_axes(self.mesh, factors, rule.sizes, found)
            for factors in rule.tensors[tensor]
        )

    def _project(self, rule: Rule, tensor: int, dims: Dims) -> dict[int, Axes]:
        found: dict[int, Axes] = {}
        for factors, axes in zip(rule.tensors[tensor], dims, strict=True):
            if axes and factors:
                found |= factor_axes(self.mesh, factors, rule.sizes, axes)
        return found

    def _choose(
        self, operation: HloOperation, rule: Rule, dims: Sequence[Dims]
    ) -> tuple[dict[int, Axes], Axes]:
        """The axes of each factor that the operation is computed with, and those that its results
        are summed over: axes of what both sides of a product are split along, and of one side where
        nothing else uses them."""
        count = len(operation.operands)
        given = [self._project(rule, tensor, own) for tensor, own in enumerate(dims)]
        found: dict[int, Axes] = {}
        for own in given[count:]:
            for factor, axes in own.items():
                if rule.kinds[factor] != Factor.WHOLE:
                    found.setdefault(factor, axes)
        if operation.opcode in _LOOK_UPS:
            return self._look_up(operation, rule, given, found)
        if operation.opcode == "reshape" and loses_split(self.mesh, rule, dims[0], found, given[0]):
            return given[0], ()
        sums: list[int] = []
        for factor, kind in enumerate(rule.kinds):
            if kind != Factor.SUM:
                continue
            places = [
                tensor
                for tensor in range(count)
                if any(factor in factors for factors in rule.tensors[tensor])
            ]
            offered = [given[tensor].get(factor, ()) for tensor in places]
            axes = max(offered, key=len, default=())
            if not all(one[: len(axes)] == axes for one in offered):
                shortest = shared_axes(offered)
                used = {axis for own in found.values() for axis in own}
                used |= {
                    axis
                    for t in places
                    for f, own in given[t].items()
                    if f != factor
                    for axis in own
                }
                free = tuple(axis for axis in axes if axis not in used)
                axes = free if free == axes[: len(free)] and len(free) > len(shortest) else shortest
            if axes:
                found = {f: _without(own, axes) for f, own in found.items()}
                found[factor] = axes
                sums += axes
        return {factor: axes for factor, axes in found.items() if axes}, tuple(sums)

    def _look_up(
        self, operation: HloOperation, rule: Rule, given: Sequence[dict[int, Axes]],
        found: dict[int, Axes],
    ) -> tuple[dict[int, Axes], Axes]:  # fmt: skip
        """Of a gather or a scatter: the splits of a table's rows and of its places stay. Positions
        that would be split along an axis that is taken move to free axes, and are whole where
        places have those; next to places alone the smaller one of table and rows is made whole."""
        count, is_scatter = len(operation.operands), operation.opcode == "scatter"
        at = (count - 1) // 2 if is_scatter else 1
        table = {factor for factors in rule.tensors[0] for factor in factors}
        positions = {factor for factors in rule.tensors[at] for factor in factors} - table
        ids = {
            factor
            for factors in rule.tensors[at + 1 if is_scatter else count]
            for factor in factors
        }
        lies = {
            factor: axes
            for own in given[count if is_scatter else 0 :: count + 1]
            for factor, axes in own.items()
        }
        rows = {
            factor: lies[factor]
            for factor in table & ids
            if factor in lies and factor not in positions
        }
        places = {factor: lies[factor] for factor in table - ids if factor in lies}
        taken = {
            axis for axes in (*rows.values(), *([] if rows else places.values())) for axis in axes
        }
        split = {
            factor: max((own.get(factor, ()) for own in given), key=len) for factor in positions
        }
        looked_up = operation.operands[at + 1] if is_scatter else operation.results[0]
        swapped: dict[int, Axes] = {}
        for factor, axes in split.items():
            if not taken.isdisjoint(axes) and (
                rows or self._nbytes(operation.operands[0]) > self._nbytes(looked_up)
            ):
                free = [axis for axis in range(len(self.mesh.sizes)) if axis not in taken]
                extent = self.mesh.extent(axes)
                moved = tuple(
                    a for n, a in enumerate(free) if self.mesh.extent(free[: n + 1]) <= extent
                )
                other = next(
                    (
                        f
                        for f, own in split.items()
                        if f != factor and not set(own).isdisjoint(moved)
                    ),
                    factor,
                )
                tail = split[other][-len(axes) :]
                if other == factor:
                    split[factor] = moved
                elif len(split[other]) > len(axes) and self.mesh.extent(tail) == extent:
                    # Both are split along free axes: the last one of the other goes here, and this
                    # one goes there.
                    kept = split[other][: -len(axes)]
                    swapped = {**split, factor: tail, other: kept + axes}
                    split |= {factor: tail, other: kept}
                else:
                    split[factor] = ()
        if swapped:
            for tensor, value in (
                (at, operation.operands[at]),
                (at + 1 if is_scatter else count, looked_up),
            ):
                self.detours[value] = self._need(rule, tensor, swapped)
        held = {axis for axes in places.values() for axis in axes}
        is_met = rows and any(not held.isdisjoint(axes) for axes in split.values())
        more = self._nbytes(operation.operands[0]) - self._nbytes(looked_up)
        if is_met and not swapped and (more > 0 if is_scatter else more != 0):
            self.detours[operation.operands[at]] = self._need(rule, at, split)
            split = {
                factor: () if not held.isdisjoint(axes) else axes for factor, axes in split.items()
            }
        used = {axis for axes in split.values() for axis in axes}
        places = {factor: axes for factor, axes in places.items() if used.isdisjoint(axes)}
        shared = {f: axes for f, axes in found.items() if f in positions or f in table}
        chosen = {**shared, **rows, **split, **dict.fromkeys(table - ids, ()), **places}
        summed = split if is_scatter else places
        sums = tuple(axis for axes in summed.values() for axis in axes)
        return {factor: axes for factor, axes in chosen.items() if axes}, sums

    def _nbytes(self, value: int) -> int:
        return self.global_types[value].nbytes

    def _complete(
        self, part: int, value: int, sums: Axes, maker: HloOperation, on_the_way: Dims | None
    ) -> None:
        """Sums over devices, then whatever brings the result to where it is to lie."""
        wanted, dims, where = on_the_way or self._dims(value), self._dims(part), maker.where
        by = _unless_added(maker)
        if sums:
            scattered = [
                d
                for d, (has, axes) in enumerate(zip(dims, wanted, strict=True))
                if axes[: len(has)] == has
                and len(axes) > len(has)
                and set(axes[len(has) :]) <= set(sums)
            ]
            if len(scattered) == 1:
                over = wanted[scattered[0]][len(dims[scattered[0]]) :]
                rest = tuple(axis for axis in sums if axis not in over)
                if rest:
                    part = self._collective("all_reduce", part, dims, rest, where, **by)
                after = (*dims[: scattered[0]], wanted[scattered[0]], *dims[scattered[0] + 1 :])
                part = self._collective(
                    "reduce_scatter", part, after, over, where, dim=scattered[0], **by
                )
            else:
                part = self._collective("all_reduce", part, dims, sums, where, **by)
        self._bring(part, self._dims(value), self.operations, where, into=value)

    def _collective(
        self, opcode: str, value: int, dims: Dims, axes: Axes, where: str, **attributes: object
    ) -> int:
        made = self._new_value(value, dims)
        attributes |= {"axes": tuple(sorted(axes))}
        self.operations.append(
            HloOperation(opcode, (value,), (made,), dict(attributes), where=where)
        )
        return made

    def _bring(
        self, value: int, wanted: Dims, into_operations: list[HloOperation], where: str,
        reader: HloOperation | None = None, into: int | None = None,
    ) -> int:  # fmt: skip
        """`value` with another sharding; `into`: the value that is to be it."""
        has = self._dims(value)
        if into is None and has == wanted:
            return value
        steps = moves(self.mesh, has, wanted)
        # What products gather is shared later, by how far apart they are.
        only_gathers = all(step.kind == "all_gather" for step in steps)
        is_kept = reader is None or reader.opcode not in (_PRODUCTS if only_gathers else _LOOK_UPS)
        if into is None and is_kept and (value, wanted) in self.moved:
            return self.moved[value, wanted]
        maker = self.makers.get(value)
        if into is None and maker is not None and value in self.known:
            operands = maker.operands
            if not _is_remade(maker):
                operands = tuple(
                    self._bring(
                        one, self._for_result(maker, tensor, wanted), into_operations, where
                    )
                    for tensor, one in enumerate(operands)
                )
            made = self._new_value(value, wanted)
            into_operations.append(dataclasses.replace(maker, operands=operands, results=(made,)))
            self.moved[value, wanted] = made
            return made
        if reader is not None and not has_rule(
            reader,
            *([self.global_types[v].shape for v in vs] for vs in (reader.operands, reader.results)),
        ):
            reason = (
                f"{reader.opcode} ({where}) has no rule for split arrays: its operands "
                "are made whole"
            )
            self.doubts.append(Doubt("sharding", reader.opcode, reason))
        now = value
        for index, step in enumerate(steps):
            is_last = index == len(steps) - 1
            made = into if into is not None and is_last else self._new_value(value, step.dims)
            attributes: dict[str, object] = {
                "axes": tuple(sorted(step.axes)),
                "dim": step.dimension,
            }
            if step.kind == "dynamic_slice":
                attributes = {"sizes": self.types[made].shape}
            elif step.kind == "collective_permute":
                attributes = {"axes": step.axes, "hops": (self._dims(now), step.dims)}
            into_operations.append(
                HloOperation(step.kind, (now,), (made,), attributes, where=where)
            )
            now = made
        if not steps and into is not None:
            self._rename(into_operations, now, into)
        if into is None:
            self.moved[value, wanted] = now
        return now

    def _note(self, operation: HloOperation) -> None:
        """Values that are worked out from places and constants alone, such as one number everywhere
        and tables of
        rotary positions: each device makes what it needs of them, where other numbers are
        gathered."""
        self.makers.update(dict.fromkeys(operation.results, operation))
        rule = self.rules.get(id(operation))
        steps = [self.known.get(value, _KNOWN_STEPS) for value in operation.operands]
        if _is_remade(operation):
            steps = [0]
        elif rule is None or not (rule.is_same or operation.opcode in _SPREADING):
            return
        if max(steps, default=_KNOWN_STEPS) < _KNOWN_STEPS:
            self.known.update(dict.fromkeys(operation.results, max(steps) + 1))

    def _for_result(self, maker: HloOperation, tensor: int, wanted: Dims) -> Dims:
        """Return how an operand lies where the result is to lie as `wanted`."""
        rule = self.rules[id(maker)]
        return self._need(rule, tensor, self._project(rule, len(maker.operands), wanted))

    def _rename(self, operations: list[HloOperation], made: int, wanted: int) -> None:
        """The last operation makes `wanted` in place of `made`."""
        maker = next(operation for operation in reversed(operations) if made in operation.results)
        maker.results = tuple(wanted if value == made else value for value in maker.results)

    def _exchange_edges(
        self, operation: HloOperation, rule: Rule, found: dict[int, Axes], taken: list[int]
    ) -> None:
        """Neighbours send each other what windows and shifted parts reach over the edge of
        theirs."""
        for factor, axes in found.items():
            if rule.kinds[factor] != Factor.SHIFT:
                continue
            for tensor, value in enumerate(taken):
                dimension = next(
                    (d for d, fs in enumerate(rule.tensors[tensor]) if factor in fs), None
                )
                if dimension is None:
                    continue
                edge = self._new_value(value, self._dims(value))
                shape = list(self.types[value].shape)
                shape[dimension] = 1
                self.types[edge] = TensorType(tuple(shape), self.types[value].dtype)
                self.operations.append(
                    HloOperation(
                        "collective_permute",
                        (value,),
                        (edge,),
                        {"axes": axes, "keeps": True},
                        where=operation.where,
                    )
                )

    def _localise(self, operation: HloOperation) -> None:
        """Attributes that repeat the shape of an array."""
        before = [self.types[value].shape for value in operation.operands]
        after = self.types[operation.results[0]].shape if operation.results else ()
        changed: dict[str, object] = {}
        if operation.opcode == "slice":
            whole = self.global_types[operation.operands[0]].shape
            limits = operation.ints("limits")
            changed["limits"] = tuple(
                own if limit == all_ and own != all_ else limit if own == all_ else own
                for limit, all_, own in zip(limits, whole, before[0], strict=True)
            )
        elif operation.opcode == "dynamic_slice":
            changed["sizes"] = after
        elif operation.opcode == "gather" and operation.ints("sizes"):
            sizes = zip(
                operation.ints("sizes"),
                self.global_types[operation.operands[0]].shape,
                before[0],
                strict=True,
            )
            changed["sizes"] = tuple(own if size == all_ else size for size, all_, own in sizes)
        if changed:
            operation.attributes = {**operation.attributes, **changed}

    # --- loops and branches

    def _control(self, operation: HloOperation) -> None:
        """Values that a loop carries lie alike in every turn; results of branches as what is behind
        them."""
        is_loop, last = operation.opcode == "while", operation.bodies[-1]
        operands = list(operation.operands)
        if is_loop:
            for place, value in enumerate(operands):
                own = last.parameters[place]
                if last.results[place] == own and value in self.known:
                    # each device has all of it
                    self._set_dims(own, ((),) * len(self.global_types[own].shape))
                dims = self._dims(own)
                operands[place] = self._bring(value, dims, self.operations, operation.where)
                self._set_dims(operation.results[place], dims)
                for body in operation.bodies[:-1]:
                    self._set_dims(body.parameters[place], dims)
        wanted = [self._dims(value) for value in operation.results]
        bodies = [
            self._body(body, wanted if body is last or not is_loop else None)
            for body in operation.bodies
        ]
        self.operations.append(
            dataclasses.replace(operation, operands=tuple(operands), bodies=tuple(bodies))
        )


def _is_remade(operation: HloOperation) -> bool:
    """Return whether each device makes what it needs of it, however it is split: numbers that are
    known."""
    return operation.opcode in ("constant", "iota") or (
        operation.opcode == "broadcast_in_dim" and not operation.ints("dims")
    )


def _without(axes: Axes, others: Iterable[int]) -> Axes:
    """Axes up to the first that is used elsewhere."""
    taken = set(others)
    place = next((index for index, axis in enumerate(axes) if axis in taken), len(axes))
    return axes[:place]


def _unless_added(operation: HloOperation) -> dict[str, str]:
    """Return what a reduction does with numbers if it does not add them: a collective joins others
    that do the same."""
    by = operation.text("by") if operation.opcode == "reduce" else ""
    return {} if by in _ADDING else {"by": by}
