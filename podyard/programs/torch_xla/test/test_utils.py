"""torch_xla.test.test_utils: progress, as PyTorch/XLA's own examples print it."""

from __future__ import annotations

from typing import Any

from torch_xla.core import xla_model as xm

from podyard.base.clock import OsClock


def now(format: str = "%H:%M:%S") -> str:  # noqa: ARG001
    return OsClock().now().rfc3339()[11:19]


def get_device_spec(device: Any) -> str:
    ordinal = xm.get_ordinal()
    return str(device) if xm.xrt_world_size() == 1 else f"{device}/{ordinal}"


def get_summary_writer(logdir: str | None) -> Any:
    if not logdir or not xm.is_master_ordinal():
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(log_dir=logdir)


def add_scalar_to_summary(
    summary_writer: Any, metric_name: str, metric_value: float, global_step: int
) -> None:
    if summary_writer is not None:
        summary_writer.add_scalar(metric_name, metric_value, global_step)


def write_to_summary(
    summary_writer: Any,
    global_step: int | None = None,
    dict_to_write: Any = None,
    write_xla_metrics: bool = False,  # noqa: ARG001
) -> None:
    for name, value in (dict_to_write or {}).items():
        add_scalar_to_summary(summary_writer, name, value, global_step or 0)


def close_summary_writer(summary_writer: Any) -> None:
    if summary_writer is not None:
        summary_writer.close()


def print_training_update(
    device: Any, step: int, loss: Any, rate: float, global_rate: float, epoch: int | None = None,
    summary_writer: Any = None,
) -> None:  # fmt: skip
    epoch_text = f"Epoch={epoch} " if epoch is not None else ""
    value = loss.item() if hasattr(loss, "item") else loss
    print(
        f"| Training Device={get_device_spec(device)} {epoch_text}Step={step} Loss={value:.5f} "
        f"Rate={rate:.2f} "
        f"GlobalRate={global_rate:.2f} Time={now()}",
        flush=True,
    )
    write_to_summary(
        summary_writer, step, {"examples/sec": rate, "average_examples/sec": global_rate}
    )


def print_test_update(
    device: Any, accuracy: float | None, epoch: int | None = None, step: int | None = None
) -> None:
    epoch_text = f"Epoch={epoch} " if epoch is not None else ""
    step_text = f"Step={step} " if step is not None else ""
    accuracy_text = f"Accuracy={accuracy:.2f} " if accuracy is not None else ""
    print(
        f"| Test Device={get_device_spec(device)} "
        f"{step_text}{epoch_text}{accuracy_text}Time={now()}",
        flush=True,
    )
