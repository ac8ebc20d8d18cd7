"""What the processes of a slice tell each other: python torch_collectives.py."""

import sys

import torch
import torch_xla
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.distributed.xla_multiprocessing import MpSerialExecutor

SERIAL = MpSerialExecutor()


def check(index):
    world, ordinal = xr.world_size(), xr.global_ordinal()
    own = torch.full((2,), float(ordinal), device=xm.xla_device())
    total = world * (world - 1) / 2
    assert xm.all_reduce(xm.REDUCE_SUM, own).tolist() == [total, total]
    assert xm.all_reduce(xm.REDUCE_MAX, own, scale=2.0).tolist() == [2.0 * (world - 1)] * 2
    in_place = [own.clone(), torch.ones(3, dtype=torch.int64)]
    assert xm.all_reduce(xm.REDUCE_SUM, in_place) is None
    assert (in_place[0].tolist(), in_place[1].tolist()) == ([total, total], [world] * 3)
    halves = [list(range(world // 2)), list(range(world // 2, world))]
    assert xm.all_reduce(xm.REDUCE_SUM, torch.ones(1), groups=halves).item() == world // 2
    assert xm.all_gather(own, dim=0).tolist() == [float(n) for n in range(world) for _ in range(2)]
    assert xm.reduce_scatter(xm.REDUCE_SUM, torch.arange(world), 1.0, 0, world).tolist() == [
        world * ordinal
    ]
    shares = torch.arange(world) + 100 * ordinal
    assert xm.all_to_all(shares, 0, 0, world).tolist() == [100 * n + ordinal for n in range(world)]
    ring = [(n, (n + 1) % world) for n in range(world)]
    assert xm.collective_permute(own, ring).tolist() == [(ordinal - 1) % world] * 2
    parameter = torch.tensor([float(ordinal)])
    xm.collective_broadcast([parameter], root_ordinal=3)
    assert parameter.item() == 3.0
    assert xm.rendezvous("who", str(ordinal).encode()) == [str(n).encode() for n in range(world)]
    assert xm.mesh_reduce("most", ordinal, max) == world - 1
    weight = torch.ones(1, requires_grad=True)
    (xf.all_gather(weight * ordinal) * (ordinal + 1)).sum().backward()
    assert weight.grad.item() == ordinal * world * (world + 1) / 2
    assert SERIAL.run(lambda: ordinal) == ordinal
    large = torch.linspace(0.0, 1.0, 5_000_000) * (ordinal + 1)
    found, expected = xm.all_reduce(xm.REDUCE_SUM, large), torch.zeros(())
    for n in range(world):
        expected = expected + torch.linspace(0.0, 1.0, 5_000_000) * (n + 1)
    assert torch.equal(found, expected)
    half = xm.all_reduce(xm.REDUCE_SUM, torch.ones(3, dtype=torch.bfloat16))
    assert (half.dtype, half[0].item()) == (torch.bfloat16, world)
    count = (
        xr.process_count(),
        xr.addressable_device_count(),
        xr.local_device_count(),
        xr.global_device_count(),
    )
    xm.rendezvous("end")
    words = ("process", ordinal, xm.get_local_ordinal(), *count, xm.xla_real_devices()[0])
    sys.stdout.write(" ".join(map(str, words)) + "\n")


if __name__ == "__main__":
    devices = ",".join(map(str, torch_xla.devices()))
    print(
        "program",
        devices,
        xr.world_size(),
        xm.xla_device_kind(),
        xm.xla_device_hw(torch_xla.device()),
        flush=True,
    )
    torch_xla.launch(check, start_method="fork")
