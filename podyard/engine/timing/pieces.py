"""Rows that are cut: into pieces that are put together again, as by a rotary embedding, and into
gates. Pieces are in memory in between, and the kernel after the product's works out the gates."""

from __future__ import annotations

from podyard.engine.program.ir import HloOperation, TensorType
from podyard.engine.timing.graph import ELEMENTWISE, JUST_AFTER, REORDERING, SMALL_SIZE, Kernel
from podyard.engine.timing.layout import LANES, compact_layout, in_whole_tiles, nbytes_in_memory
from podyard.engine.timing.places import Places

_PUTS_TOGETHER = frozenset({"concatenate", "pad"})
# Parts of a row that are gates: two are halves, as of rotary positions.
_FEWEST_GATES = 3
# What becomes of pieces that were filled up, until the whole is converted.
_ADDED_UP = frozenset({"add", "maximum", "reshape"})


class Pieces(Places):
    """The kernel of a product does not cut its result for what is worked out of the parts and put
    together again, and readers put together only what is in memory. So there is a kernel in
    between, which writes the pieces. (Compiled: both halves of queries and keys, and of their
    gradients, are one kernel on five generations.) The model has it where the pieces do not fill
    their tiles; elsewhere it costs little, see engine-corpus.md."""

    def _begins_pieces(self, operation: HloOperation) -> bool:
        """Return whether a slice of a product's result is the beginning of a piece that is put
        together with others."""
        part = self.program.types[operation.results[0]]
        if operation.opcode != "slice" or part.size < SMALL_SIZE:
            return False
        if nbytes_in_memory(part, self.tiling) <= part.nbytes:
            return False
        source, shape = (
            self.program.types[value].shape
            for value in (operation.operands[0], operation.results[0])
        )
        axes = [axis for axis, extent in enumerate(shape) if extent < source[axis]]
        stack, seen = list(operation.results), set[int]()
        while stack and len(axes) == 1:
            value = stack.pop()
            for user in self.users.get(value, ()):
                whole = self.program.types[user.results[0]].shape
                if user.opcode in _PUTS_TOGETHER and whole == source:
                    return True
                if (
                    user.opcode in ELEMENTWISE
                    and whole == shape
                    and not seen.issuperset(user.results)
                ):
                    seen.update(user.results)
                    stack += user.results
        return False

    def _is_gate(self, operation: HloOperation) -> bool:
        """Return whether a slice is one of several that a row is cut into, and nothing else reads
        the row: a product's result as the matrix units give it, or what was cut from a stack. (A
        gated recurrent unit, whose gates are cut before they are added up: ten compiled programs on
        five generations.)"""
        row = self.resolve(operation.operands[0]) if operation.opcode == "slice" else None
        users = self.users.get(row, []) if row is not None else []
        if (
            row is None
            or len(users) < _FEWEST_GATES
            or any(user.opcode != "slice" for user in users)
        ):
            return False
        worked_on = (user for part in users for user in self.users.get(part.results[0], ()))
        if any(user.opcode not in ELEMENTWISE or user.opcode in REORDERING for user in worked_on):
            return False
        made = self.program.producer(row)
        is_product = row not in self.floating and made is not None and made.opcode == "dot_general"
        return (is_product or self._is_from_stack(row)) and self.program.types[
            row
        ].size >= SMALL_SIZE

    def _cut_gate(self, operation: HloOperation) -> None:
        """One kernel after the product's works out the gates; what is cut from a stack for them is
        written first."""
        row = self.resolve(operation.operands[0])
        if row in self.floating:
            if row not in self.materialised:
                self._write_cut(row)
            self._float(operation, self._ready(row))
            return
        if row not in self._gates:
            self._gates[row] = self._start("loop", None).index
        self.home |= dict.fromkeys(operation.results, self._gates[row])

    def _join_pieces(self, operation: HloOperation) -> bool:
        """Writes the computed pieces that a concatenation or a padding puts into one row; whether
        there are any."""
        operands = self._operands(operation)
        pieces = dict.fromkeys(value for value in operands if self._is_piece(value))
        for value in pieces:
            self.pieces[value] = self._type_of_piece(value, operation.results[0])
            for leaf in self.cut.intersection(self._leaves(value, {})):
                self.pieces[leaf] = in_whole_tiles(self.program.types[leaf])
            self._materialise(value, self._writer_of_pieces(value))
        if pieces:
            self._float(operation, max(map(self._ready, operands)))
        return bool(pieces)

    def _is_piece(self, value: int) -> bool:
        """Return whether a value is computed from what was cut from products' results."""
        if value not in self.floating or value in self.materialised or not self._computes(value):
            return False
        return any(leaf in self.cut for leaf in self._leaves(value, {}))

    def _type_of_piece(self, value: int, whole: int) -> TensorType:
        """Return what a piece is in memory: as all that read the whole convert it, and with the
        whole's axis in lanes, which it may not fill, if any other way has padding, too."""
        piece, row = self.program.types[value], self.program.types[whole]
        type_ = TensorType(piece.shape, self._narrowed(whole))
        lane = compact_layout(row, self.tiling).lane_axis
        is_filled = nbytes_in_memory(type_, self.tiling) <= type_.nbytes
        if is_filled or lane is None or piece.shape[lane] == row.shape[lane]:
            return in_whole_tiles(type_)
        shape = list(piece.shape)
        shape[lane] = -(-shape[lane] // LANES) * LANES
        return in_whole_tiles(TensorType(tuple(shape), type_.dtype))

    def _narrowed(self, value: int) -> str:
        """The type that all readers of a value convert it to, after they have put it together."""
        own = self.program.types[value].dtype
        while len(users := self.users.get(value, [])) == 1 and users[0].opcode in _ADDED_UP:
            value = users[0].results[0]
        types = {self.program.types[user.results[0]].dtype for user in users}
        return (
            types.pop()
            if len(types) == 1 and all(user.opcode == "convert" for user in users)
            else own
        )

    def _writer_of_pieces(self, value: int) -> Kernel:
        """The kernel of other pieces of that shape, if nothing reads them yet; else another one."""
        shape, ready = self.program.types[value].shape, self.after[value] + JUST_AFTER
        last = self._last_pieces
        if (
            last is None
            or self.program.types[last.outputs[0]].shape != shape
            or self._is_read(last)
        ):
            last = self._last_pieces = self._start("loop", None)
            self.order[last.index] = ready
        self.order[last.index] = max(ready, self.order[last.index])
        return last

    def _is_read(self, kernel: Kernel) -> bool:
        """Return whether a kernel that was started later reads what this one writes."""
        for later in self.kernels[kernel.index + 1 :]:
            anchor = [later.anchor] if later.anchor is not None else []
            for operation in (*anchor, *later.reductions):
                if any(
                    set(self._leaves(one, {})) & set(kernel.outputs)
                    for one in self._operands(operation)
                ):
                    return True
        return False
