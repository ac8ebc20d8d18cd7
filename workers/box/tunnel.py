"""Cables between the switches of one slice on different machines: its boxes are neighbours wherever
they are.

For each other agent with hosts of a slice the switch has a TAP device, whose Ethernet frames go
over one TLS connection. Devices of cables are isolated from each other: a frame that came by one
leaves by none, so that a mesh of machines has no loop. Of two agents the one with the smaller name
dials. A cable that breaks is laid again; what was under way is lost, as on any network.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
import os
import ssl
from collections.abc import Sequence
from pathlib import Path

from podyard.base.clock import RealClock
from podyard.workers.box import plan as box_plan
from podyard.workers.box import space as box_space
from podyard.workers.box import switch as box_switch
from podyard.workers.kit import slice_tls

logger = logging.getLogger(__name__)

DIAL_SECONDS_MAX = 10.0
AGAIN_SECONDS = (0.2, 1.0, 3.0)  # before the 1st, 2nd, ... try in a row; the last one stays
STEADY_SECONDS = 10.0  # a cable that has held so long is laid again with the first wait
FRAMES_PER_TURN_MAX = 64  # read from a device before other work has its turn
PIECE_BYTES = 256 << 10
# beyond it frames wait in the device, and then are dropped: senders slow down
UNSENT_BYTES_MAX = 1 << 20
_LENGTH_BYTES = 2


@dataclasses.dataclass(frozen=True, slots=True)
class CablePeer:
    """Another agent with hosts of a slice. `port` 0: it does not listen yet."""

    agent: str
    address: str
    port: int


@dataclasses.dataclass(frozen=True, slots=True)
class SwitchPlan:
    """The switch of a slice on this machine, the key that all its machines have, and the others."""

    name: str
    key: bytes
    peers: tuple[CablePeer, ...]

    @property
    def public_name(self) -> str:
        """By which a dialling machine says which slice it means; it tells nothing about the key."""
        return hashlib.sha256(b"podyard slice name" + self.key).hexdigest()[:32]


class Cables:
    """All cables of one host server. `follow` says which there are to be."""

    def __init__(
        self, agent_id: str, agent_folder: Path, bind_address: str, clock: RealClock
    ) -> None:
        self._agent_id = agent_id
        self._agent_folder = agent_folder
        self._bind_address = bind_address
        self._clock = clock
        self._plans: dict[str, SwitchPlan] = {}
        self._contexts: dict[bytes, tuple[ssl.SSLContext, ssl.SSLContext]] = {}
        self._cables: dict[tuple[str, str], _Cable] = {}
        self._server: asyncio.Server | None = None
        self.port = 0  # 0: nothing is to be connected, so nothing listens

    async def follow(self, plans: Sequence[SwitchPlan]) -> None:
        """Lays the cables that are missing and takes away those of nobody."""
        self._plans = {plan.public_name: plan for plan in plans}
        for plan in plans:
            if plan.key not in self._contexts:
                self._contexts[plan.key] = slice_tls.contexts(plan.key)
        wanted = {(plan.name, peer.agent): (plan, peer) for plan in plans for peer in plan.peers}
        for which in [which for which in self._cables if which not in wanted]:
            self._cables.pop(which).close()
        if wanted and self._server is None:
            await self._listen()
        for which, (plan, peer) in wanted.items():
            cable = self._cables.get(which)
            if cable is None:
                cable = self._cables[which] = _Cable(
                    self._agent_folder, plan.name, peer.agent, self._clock
                )
            if self._agent_id < peer.agent and peer.port:
                cable.dial(peer, self._contexts[plan.key][0], plan.public_name, self._agent_id)
            cable.check()

    def states(self) -> dict[tuple[str, str], bool]:
        """(switch, agent) -> whether its cable carries frames."""
        return {which: cable.is_up for which, cable in self._cables.items()}

    async def close(self) -> None:
        await self.follow(())
        if self._server is not None:
            self._server.close()
            self._server, self.port = None, 0

    async def _listen(self) -> None:
        empty = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        empty.minimum_version = ssl.TLSVersion.TLSv1_3
        empty.verify_mode = ssl.CERT_REQUIRED

        def choose(
            connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext
        ) -> int | None:
            plan = self._plans.get(name or "")
            if plan is None:
                return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
            connection.context = self._contexts[plan.key][1]
            return None

        empty.sni_callback = choose
        self._server = await asyncio.start_server(self._accept, self._bind_address, 0, ssl=empty)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The handshake has shown that the other side has the slice's key; it says which agent it
        is."""
        context = writer.get_extra_info("ssl_object").context
        plan = next(
            (plan for plan in self._plans.values() if self._contexts[plan.key][1] is context), None
        )
        try:
            async with asyncio.timeout(DIAL_SECONDS_MAX):
                agent = (await reader.readline()).decode(errors="replace").strip()
        except (OSError, ValueError, TimeoutError):
            agent = ""
        cable = None if plan is None else self._cables.get((plan.name, agent))
        if cable is None:
            logger.info("agent %r has no hosts of this slice, as far as is known here", agent)
            writer.close()
            return
        await cable.carry(reader, writer)


class _Cable:
    """The device in a switch and the connection that belongs to it, once there is one."""

    def __init__(self, agent_folder: Path, switch: str, agent: str, clock: RealClock) -> None:
        self._agent_folder = agent_folder
        self._switch = switch
        self._agent = agent
        self._clock = clock
        self._dialling: asyncio.Task[None] | None = None
        self._target: tuple[CablePeer, ssl.SSLContext, str, str] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._switch_number = 0
        self._closed = False

    @property
    def is_up(self) -> bool:
        return self._writer is not None

    def dial(self, peer: CablePeer, context: ssl.SSLContext, slice_name: str, own_id: str) -> None:
        """Keeps a connection to the peer, wherever it is now."""
        self._target = (peer, context, slice_name, own_id)
        if self._dialling is None:
            self._dialling = asyncio.ensure_future(self._keep())

    def close(self) -> None:
        self._closed = True
        if self._dialling is not None:
            self._dialling.cancel()
        if self._writer is not None:
            self._writer.close()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Frames both ways, until the connection ends. A newer connection takes an older one's
        place."""
        if self._writer is not None:
            self._writer.close()
        self._writer = writer
        device = -1
        try:
            space = box_space.of(self._agent_folder)
            self._switch_number = box_switch.number(space, self._switch)
            name = box_plan.cable_name(self._agent)
            device = await asyncio.to_thread(box_switch.open_tap, space, self._switch, name)
            writer.transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
            sending = asyncio.ensure_future(_send(device, writer))
            try:
                await _receive(reader, device)
            finally:
                sending.cancel()
                await asyncio.wait([sending])
        except OSError as error:
            logger.info(
                "the cable of %s to agent %s has ended: %s", self._switch, self._agent, error
            )
        finally:
            if device >= 0:
                os.close(device)
            writer.close()
            if self._writer is writer:
                self._writer = None

    def check(self) -> None:
        """Ends the connection when the switch that it was made for is gone: its device would keep
        the old one alive."""
        space = box_space.of(self._agent_folder)
        if (
            self._writer is not None
            and box_switch.number(space, self._switch) != self._switch_number
        ):
            self._writer.close()

    async def _keep(self) -> None:
        tries = 0
        while not self._closed:
            assert self._target is not None
            peer, context, slice_name, own_id = self._target
            began = self._clock.monotonic_seconds()
            try:
                async with asyncio.timeout(DIAL_SECONDS_MAX):
                    reader, writer = await asyncio.open_connection(
                        peer.address, peer.port, ssl=context, server_hostname=slice_name
                    )
                writer.write(f"{own_id}\n".encode())
                await self.carry(reader, writer)
            except (OSError, TimeoutError) as error:
                logger.info(
                    "no cable to agent %s at %s:%s: %s", self._agent, peer.address, peer.port, error
                )
            tries = 0 if self._clock.monotonic_seconds() - began > STEADY_SECONDS else tries + 1
            await asyncio.sleep(AGAIN_SECONDS[min(tries, len(AGAIN_SECONDS) - 1)])


async def _send(device: int, writer: asyncio.StreamWriter) -> None:
    """Frames of the device into the connection. While that takes no more they wait in the device,
    which drops what it has no room for: senders slow down."""
    while True:
        await _readable(device)
        found = bytearray()
        with contextlib.suppress(BlockingIOError):
            for _ in range(FRAMES_PER_TURN_MAX):
                frame = os.read(device, box_plan.FRAME_BYTES_MAX)
                found += len(frame).to_bytes(_LENGTH_BYTES, "big")
                found += frame
        writer.write(found)
        await writer.drain()


async def _readable(device: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(device, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(device)


async def _receive(reader: asyncio.StreamReader, device: int) -> None:
    """Frames of the connection into the device, until its end."""
    kept = b""
    while piece := await reader.read(PIECE_BYTES):
        kept += piece
        begin = 0
        while len(kept) - begin >= _LENGTH_BYTES:
            end = begin + _LENGTH_BYTES + int.from_bytes(kept[begin : begin + _LENGTH_BYTES], "big")
            if end > len(kept):
                break
            # A full queue of the device drops the frame, as a switch does.
            with contextlib.suppress(BlockingIOError):
                os.write(device, kept[begin + _LENGTH_BYTES : end])
            begin = end
        kept = kept[begin:]
