"""torch_xla.stablehlo: its names can be imported, and say that programs are not exported here."""

from __future__ import annotations

from torch_xla._refusals import refusal

INSTEAD = (
    "operations are computed when they are called, and there is no graph to export. The real "
    "torch_xla exports on CPU devices (PJRT_DEVICE=CPU)"
)

exported_program_to_stablehlo = refusal(
    "torch_xla.stablehlo.exported_program_to_stablehlo", INSTEAD
)
save_torch_model_as_stablehlo = refusal(
    "torch_xla.stablehlo.save_torch_model_as_stablehlo", INSTEAD
)
save_as_stablehlo = refusal("torch_xla.stablehlo.save_as_stablehlo", INSTEAD)
StableHLOExportOptions = refusal("torch_xla.stablehlo.StableHLOExportOptions", INSTEAD)
