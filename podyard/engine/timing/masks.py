"""Masks of images that are kept for the gradient of pooling."""

from __future__ import annotations

from podyard.engine.program.ir import HloOperation
from podyard.engine.timing.graph import MASK_BITS, SMALL_SIZE
from podyard.engine.timing.relayouts import Relayouts


class Masks(Relayouts):
    """Finds and places them."""

    def _mask(self, operation: HloOperation) -> None:
        """Bits of a column of an image are packed into a word; of longer columns no mask is kept,
        but what it is of."""
        source = self.resolve(operation.operands[0])
        if self.program.types[source].shape[1] > MASK_BITS:
            self._float(operation, self._ready(source))
        else:
            self._start("reduce", operation).reductions.append(operation)

    def _is_mask_of_pooled(self, operation: HloOperation) -> bool:
        """A mask of values that are pooled, too: a separate kernel packs it."""
        source = self.resolve(operation.operands[0])
        home = self.home.get(source)
        if (
            home is None
            or self.kernels[home].kind != "matrix"
            or self.program.types[source].size < SMALL_SIZE
        ):
            return False
        pooled = [
            user
            for sibling in self.users.get(source, ())
            for value in sibling.results
            for user in self.users.get(value, ())
        ]
        return any(user.opcode in ("reduce_window", "select_and_scatter") for user in pooled)
