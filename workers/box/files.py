"""sftp and scp inside a box: `python -I box/files.py [scp -t PATH ...]`, on standard input and
output.

asyncssh's own servers, without the connection: the host server, which has one, sees files that the
box must not.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any, cast

import asyncssh
from asyncssh.logging import logger
from asyncssh.scp import run_scp_server
from asyncssh.sftp import run_sftp_server

SFTP_VERSION = 3  # what OpenSSH speaks
READ_BYTES_MAX = 4 << 20  # ahead of what is taken


class _FileReader(asyncio.StreamReader):
    logger = logger

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default


class _Channel:
    """The interface that asyncssh's servers ask of the writer of a channel, and of the channel
    itself."""

    logger = logger

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.code = 0
        self.write, self.drain, self.is_closing = writer.write, writer.drain, writer.is_closing

    @property
    def channel(self) -> _Channel:
        return self

    def exit(self, code: int) -> None:
        self.code = code

    def close(self) -> None:
        """The end of the process closes it, after all is written."""

    abort = write_eof = close

    async def wait_closed(self) -> None:
        await self._writer.drain()


async def _serve(command: Sequence[str]) -> int:
    loop = asyncio.get_running_loop()
    reader = _FileReader(limit=READ_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, sys.stdout.buffer
    )
    channel = _Channel(asyncio.StreamWriter(transport, protocol, None, loop))
    server, source, sink = (
        asyncssh.SFTPServer(cast("Any", channel)),
        cast("Any", reader),
        cast("Any", channel),
    )
    if command:
        work = run_scp_server(server, command[0], source, sink, sink)
    else:
        work = run_sftp_server(server, source, sink, SFTP_VERSION)
    if work is not None:
        await work
    await channel.wait_closed()
    return channel.code


if __name__ == "__main__":
    sys.exit(asyncio.run(_serve(sys.argv[1:])))
