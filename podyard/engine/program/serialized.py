"""StableHLO that is not text: artifacts of `jax.export`, MLIR bytecode, and HLO that is converted.
JAX reads them, and only when asked to."""

from __future__ import annotations

import importlib
from typing import Any

from podyard.base.errors import failed_precondition, invalid
from podyard.engine.program.from_stablehlo import MAX_TEXT_BYTES

_BYTECODE = b"ML\xefR"
# Portable artifacts (the versioned dialect that StableHLO is stored in) say in their header who
# wrote them.
_PORTABLE, _HEADER_BYTES = b"StableHLO_v", 32


def text_of_bytes(data: bytes) -> str:
    """The text of a module, for `parse_stablehlo`: of `Exported.serialize()`, of MLIR bytecode
    (StableHLO's portable artifacts as well), or of text in UTF-8.

    Raises PodyardError INVALID_ARGUMENT for other formats and files that are too large,
    FAILED_PRECONDITION where JAX, which reads the first two, or flatbuffers, which JAX needs for
    the first, is not installed.
    """
    if len(data) > MAX_TEXT_BYTES:
        raise invalid(
            f"a module of {len(data)} bytes is more than the {MAX_TEXT_BYTES} that are read",
            "module",
        )
    if b"\0" not in data:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise invalid(
                f"the module is neither text in UTF-8 nor a serialized program: {error}", "module"
            ) from error
    try:
        return _text_of_bytecode(data) if data.startswith(_BYTECODE) else _text_of_exported(data)
    except ImportError as error:
        raise failed_precondition(
            f"a serialized program is read by JAX (podyard[engine]): {error}"
        ) from error
    except Exception as error:  # what a decoder makes of damaged bytes is any exception
        raise invalid(
            f"the bytes are no program that JAX can read: {str(error)[:200]}", "module"
        ) from error


def text_of_hlo(data: bytes) -> str:
    """Return the text of a serialized HLO module as StableHLO.

    Raises PodyardError FAILED_PRECONDITION where JAX, whose converter this is, is not installed,
    INVALID_ARGUMENT for other bytes.
    """
    try:
        jaxlib: Any = importlib.import_module("jaxlib._jax")
        return _text_of_bytecode(jaxlib.mlir.hlo_to_stablehlo(data))
    except (ImportError, AttributeError) as error:
        raise failed_precondition(
            f"a module as HLO is read by JAX (podyard[engine]): {error}"
        ) from error
    except Exception as error:  # what a decoder makes of damaged bytes is any exception
        raise invalid(f"the bytes are no HLO module: {str(error)[:200]}", "module") from error


def _text_of_exported(data: bytes) -> str:
    from jax import export

    return str(export.deserialize(bytearray(data)).mlir_module())


def _text_of_bytecode(data: bytes) -> str:
    # Not typed by JAX.
    ir: Any = importlib.import_module("jax.extend.mlir.ir")
    stablehlo: Any = importlib.import_module("jax.extend.mlir.dialects.stablehlo")
    from jax.interpreters.mlir import make_ir_context

    with make_ir_context() as context:
        portable = _PORTABLE in data[:_HEADER_BYTES]
        module = (
            stablehlo.deserialize_portable_artifact(context, data)
            if portable
            else ir.Module.parse(data)
        )
        return str(module)
