"""JAX's coordinator listens where its program dials it, and nowhere else.

By itself it listens on all addresses of the machine, on a port that other listeners can share: two
slices on one machine would join each other without an error. And what a program calls localhost is
its own host.
"""

import os
import socket
from typing import Any

_EVERYWHERE = ("[::]", "0.0.0.0")
_LOCALHOST = ("localhost", "127.0.0.1", "[::1]")


def apply(distributed: Any) -> None:
    """`distributed`: jax._src.distributed. Its library is `_jax`, up to JAX 0.6 `xla_extension`."""
    own = os.environ.get("PODYARD_ADDRESS")
    if not own:
        return
    library = distributed._jax if hasattr(distributed, "_jax") else distributed.xla_extension
    make_service, make_client = (
        library.get_distributed_runtime_service,
        library.get_distributed_runtime_client,
    )

    def service(address: str, *args: Any, **options: Any) -> Any:
        dialled = on_host(distributed.global_state.coordinator_address, own)
        return make_service(listening_on(address, dialled), *args, **options)

    def client(address: str, *args: Any, **options: Any) -> Any:
        return make_client(on_host(address, own), *args, **options)

    library.get_distributed_runtime_service, library.get_distributed_runtime_client = (
        service,
        client,
    )


def on_host(address: str, own: str) -> str:
    """`address` (host:port) as it is meant on the host whose address is `own`."""
    name, _, port = address.rpartition(":")
    return f"{own}:{port}" if name in _LOCALHOST else address


def listening_on(address: str, dialled: str) -> str:
    """Return where a coordinator that asks for `address` and is dialled at `dialled` listens.

    Values that the program chose stay unchanged, and so does everything if `dialled` is not an
    address of this machine.
    """
    name, _, port = address.rpartition(":")
    if name not in _EVERYWHERE:
        return address
    try:
        found = socket.gethostbyname(dialled.rpartition(":")[0])
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((found, 0))
    except OSError:
        return address
    return f"{found}:{port}"
