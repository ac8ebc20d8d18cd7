"""Parts of an operation of StableHLO text, as a reader comes to them."""

from __future__ import annotations

from podyard.engine.program.ir import Body, TensorType


class OperationParts:
    """The parts of an operation that have been read."""

    def __init__(self, opcode: str, line: int) -> None:
        self.opcode = opcode
        self.line = line
        self.operands: list[int] = []
        self.positional: list[object] = []
        self.attributes: dict[str, object] = {}
        self.bodies: list[Body] = []
        self.operand_types: list[TensorType] = []
        self.result_types: list[TensorType] = []
        self.loop: dict[str, tuple[int, ...]] = {}
        self.is_while = False
        self.is_rematted = False
