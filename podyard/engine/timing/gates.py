"""Products that are computed last: gates of a network with a gradient.

Where several products of one shape meet in element-wise work, and one of them (the gate) goes
through functions of its own first, the compiler computes that one when all others are there, and
does the work in its kernel. Read off compiled steps of gated networks on v4, v5p and v6e; v5e does
the work again in every reader instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from podyard.engine.program.ir import HloOperation, Program, outer_values
from podyard.engine.timing.graph import ALIASES, ELEMENTWISE, LEAVES, REORDERING, SMALL_SIZE

# What only selects or repeats numbers of something small.
_PLAIN = frozenset({*REORDERING, "broadcast_in_dim", "dynamic_slice", "slice"})
# A gate has so many values that meet others; so much is made of what it meets.
_SEVERAL = 2


class Uses:
    """What makes and who reads a value in one body, by whatever name. `aliases`: values that are
    others."""

    def __init__(
        self,
        program: Program,
        operations: Sequence[HloOperation],
        results: Iterable[int],
        aliases: Mapping[int, int],
    ) -> None:
        self.types = program.types
        self._aliases = dict(aliases)
        named = [
            one
            for one in operations
            if one.opcode in ALIASES and len(one.operands) == len(one.results)
        ]
        for operation in named:
            self._aliases.update(zip(operation.results, operation.operands, strict=True))
        self.results = {self.resolve(value) for value in results}
        self.made = {value: operation for operation in operations for value in operation.results}
        self.users: dict[int, list[HloOperation]] = {}
        is_named = {id(operation) for operation in named}
        for operation in operations:
            for value in operation.operands if id(operation) not in is_named else ():
                self.users.setdefault(self.resolve(value), []).append(operation)

    def resolve(self, value: int) -> int:
        while value in self._aliases:
            value = self._aliases[value]
        return value


def gates_last(operations: Sequence[HloOperation], uses: Uses) -> list[HloOperation]:
    """The same operations; each gate, and all that waits for it, comes after the products that it
    meets."""
    order = list(operations)
    places = {id(operation): place for place, operation in enumerate(order)}
    for gate in [operation for operation in operations if _is_large_product(operation, uses)]:
        last = max((places[id(one)] for one in _Gate(gate, uses).others()), default=-1)
        first = places[id(gate)]
        if last <= first:
            continue
        waiting = _waiting(order[first : last + 1], uses)
        if id(order[last]) in waiting:
            continue
        part = order[first : last + 1]
        part.sort(key=lambda operation: id(operation) in waiting)
        order[first : last + 1] = part
        places.update((id(operation), first + place) for place, operation in enumerate(part))
    return order


def _is_large_product(operation: HloOperation, uses: Uses) -> bool:
    return operation.opcode == "dot_general" and uses.types[operation.results[0]].size >= SMALL_SIZE


def _waiting(operations: Sequence[HloOperation], uses: Uses) -> set[int]:
    """Those that need the first one."""
    made = set(operations[0].results)
    found = {id(operations[0])}
    for operation in operations[1:]:
        inner = (value for body in operation.bodies for value in outer_values(body))
        if any(uses.resolve(value) in made for value in (*operation.operands, *inner)):
            found.add(id(operation))
            made.update(operation.results)
    return found


class _Gate:
    """A product, and what is worked out from it."""

    def __init__(self, product: HloOperation, uses: Uses) -> None:
        self._uses = uses
        self._product = product.results[0]
        self._size = uses.types[self._product].size

    def others(self) -> list[HloOperation]:
        """The products that it waits for; none for other values."""
        own = self._functions()
        met = [value for value in own if self._meets(value, own)]
        if len(met) < _SEVERAL or self._root(met, own) is not None:
            return []
        return [
            product
            for product in self._products(own)
            if len(self._ends(product.results[0])) >= _SEVERAL
        ]

    def _functions(self) -> dict[int, HloOperation | None]:
        """Values that follow from the product and small arrays alone, with what makes them."""
        own: dict[int, HloOperation | None] = {self._product: None}
        stack = [self._product]
        while stack:
            for user in self._uses.users.get(stack.pop(), ()):
                result = user.results[0]
                if result in own or not self._is_same_size(user):
                    continue
                if all(
                    self._uses.resolve(one) in own or self._is_plain(one) for one in user.operands
                ):
                    own[result] = user
                    # What else was waiting for it is looked at again.
                    stack += [result]
        return own

    def _is_same_size(self, operation: HloOperation) -> bool:
        is_one = operation.opcode in ELEMENTWISE and len(operation.results) == 1
        return is_one and self._uses.types[operation.results[0]].size == self._size

    def _is_plain(self, value: int) -> bool:
        """Return whether a value is made of constants, or repeats a small array from outside."""
        stack = [value]
        while stack:
            current = self._uses.resolve(stack.pop())
            made = self._uses.made.get(current)
            if made is None:
                if self._uses.types[current].size >= self._size:
                    return False
            elif made.opcode in _PLAIN:
                stack += made.operands
            elif made.opcode not in LEAVES:
                return False
        return True

    def _meets(self, value: int, own: Mapping[int, HloOperation | None]) -> bool:
        """Return whether something that is not the product's own reads the value."""
        users = self._uses.users.get(value, ())
        return value in self._uses.results or any(
            own.keys().isdisjoint(user.results) for user in users
        )

    def _root(self, values: Sequence[int], own: Mapping[int, HloOperation | None]) -> int | None:
        """A later value than the product that all these follow from."""
        for root, made in own.items():
            if made is None or made.opcode in REORDERING:
                continue
            if all(self._follows(value, root, own) for value in values):
                return root
        return None

    def _follows(self, value: int, root: int, own: Mapping[int, HloOperation | None]) -> bool:
        stack, seen = [value], set[int]()
        while stack:
            current = self._uses.resolve(stack.pop())
            if current == root or current in seen or current not in own:
                continue
            seen.add(current)
            made = own[current]
            if made is None:
                return False
            stack += made.operands
        return True

    def _products(self, own: Mapping[int, HloOperation | None]) -> list[HloOperation]:
        """Products of the same size that meet what the values are worked out into."""
        found: dict[int, HloOperation] = {}
        stack, seen = list(own), set(own)
        while stack:
            for user in self._uses.users.get(stack.pop(), ()):
                if not self._is_same_size(user) or user.results[0] in seen:
                    continue
                seen.add(user.results[0])
                stack.append(user.results[0])
                for operand in user.operands:
                    made = self._uses.made.get(self._through(operand))
                    if (
                        made is not None
                        and made.opcode == "dot_general"
                        and made.results[0] not in own
                    ):
                        found[id(made)] = made
        return list(found.values())

    def _through(self, value: int) -> int:
        """Return what a value is by another name, type or order of its axes."""
        value = self._uses.resolve(value)
        made = self._uses.made.get(value)
        while made is not None and made.opcode in REORDERING:
            value = self._uses.resolve(made.operands[0])
            made = self._uses.made.get(value)
        return value

    def _ends(self, value: int) -> set[int]:
        """Return what element-wise work makes of a value, as others read it."""
        ends, stack, seen = set[int](), [value], {value}
        while stack:
            current = stack.pop()
            if current in self._uses.results:
                ends.add(current)
            for user in self._uses.users.get(current, ()):
                if not self._is_same_size(user):
                    ends.add(current)
                elif user.results[0] not in seen:
                    seen.add(user.results[0])
                    stack.append(user.results[0])
        return ends
