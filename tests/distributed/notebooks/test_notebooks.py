"""A notebook on a node, as its user meets it: the command, the page of the node, and its end."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import psutil
import pytest

from tests.conftest import require
from tests.stack import PODYARD, Stack, open_stack, until

ZONE = "us-central1-f"
NODE = f"/podyard/v1/projects/demo/locations/{ZONE}/nodes/book"
# Prints the address and the devices as the listings for Colab do, and trains.
CELL = """
import os, jax, jax.numpy as jnp
print('address', os.environ['COLAB_TPU_ADDR'])
print(len(jax.devices()), 'devices', jax.devices()[0].device_kind)
@jax.jit
def train_step(w, x, y):
    return w - 0.01 * jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
x, w = jnp.ones((128, 64)), jnp.zeros((64, 1))
for step in range(20):
    w = train_step(w, x, jnp.ones((128, 1)))
print('loss', float(jnp.mean((x @ w - 1) ** 2)) < 1e-3)
"""
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stack")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, boxes: str) -> Iterator[Stack]:
    has_jupyter = importlib.util.find_spec("jupyterlab") is not None
    require("jupyterlab" if has_jupyter else None, "JupyterLab (podyard[notebook])")
    with open_stack(tmp_path_factory.mktemp("notebooks"), {"PODYARD_BOXES": boxes}) as found:
        yield found


@pytest.fixture(scope="module")
def book(stack: Stack) -> Iterator[str]:
    stack.create_node("book", "v2-8", ZONE)
    yield "book"
    stack.delete_node("book", ZONE)
    until(lambda: not _on_the_node(stack) or None, 30, "the end of its processes")


@pytest.fixture(scope="module")
def url(stack: Stack, book: str) -> Iterator[str]:
    """The address that `podyard tpu notebook` prints."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PODYARD_")}
    command = [
        *PODYARD, "tpu", "notebook", book, "--data", str(stack.data), "--zone", ZONE,
        "--port", "0", "--no-browser",
    ]  # fmt: skip
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def _on_the_node(stack: Stack) -> list[psutil.Process]:
    ids = {path.name for path in stack.data.glob("agents/*/hosts/*")}
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PODYARD_HOST") in ids:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


class Kernel:
    """A client as a page of JupyterLab is: a kernel over REST, and a websocket to it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.base = f"{parts.scheme}://{parts.netloc}"
        self.token = parse_qs(parts.query)["token"][0]
        self.client = httpx.Client(
            base_url=self.base, headers={"Authorization": f"token {self.token}"},
            timeout=60, trust_env=False,
        )  # fmt: skip
        answer = self.client.post("/api/kernels", json={"name": "python3"})
        assert answer.status_code == 201, answer.text
        self.id = answer.json()["id"]

    def run(self, code: str) -> str:
        """Return what a cell prints, over a websocket opened for it: as after a reload."""
        return asyncio.run(asyncio.wait_for(self._run(code), 120))

    async def _run(self, code: str) -> str:
        from tornado.websocket import websocket_connect

        channels = f"{self.base.replace('http', 'ws')}/api/kernels/{self.id}/channels"
        channel = await websocket_connect(f"{channels}?token={self.token}")
        header = {
            "msg_id": "cell", "username": "", "session": "test", "msg_type": "execute_request",
            "version": "5.3",
        }  # fmt: skip
        content = {"code": code, "silent": False, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        await channel.write_message(json.dumps({**message, "channel": "shell"}))
        printed = ""
        while (text := await channel.read_message()) is not None:
            reply: dict[str, Any] = json.loads(text)
            if reply["parent_header"].get("msg_id") != "cell":
                continue
            if reply["msg_type"] == "stream":
                printed += reply["content"]["text"]
            if reply["msg_type"] == "error":
                printed += "\n".join(reply["content"]["traceback"])
            if reply["msg_type"] == "status" and reply["content"]["execution_state"] == "idle":
                break
        channel.close()
        while await channel.read_message() is not None:  # until the server has closed, too
            pass
        return printed


@pytest.fixture(scope="module")
def kernel(url: str) -> Iterator[Kernel]:
    found = Kernel(url)
    yield found
    found.client.close()


def test_a_cell_prints_the_address_and_eight_devices_and_trains(kernel: Kernel) -> None:
    assert re.fullmatch(
        r"address 10\.128\.\d+\.\d+:8470\n8 devices TPU v2\nloss True\n", kernel.run(CELL)
    )


def test_what_a_notebook_ran_is_priced(stack: Stack, kernel: Kernel) -> None:
    kernel.run(CELL)

    def look() -> re.Match[str] | None:
        listed = stack.command("tpu", "programs", "book", "--data", str(stack.data), "--zone", ZONE)
        return re.search(r"jit_train_step +\d+ +[\d.]+ (ns|us|ms)", listed.stdout)

    until(look, 60, "the price of the training step")


def test_a_kernel_survives_a_reload_and_the_end_of_the_command(
    stack: Stack, kernel: Kernel
) -> None:
    kernel.run("kept = 41")
    assert kernel.run("print(kept + 1)") == "42\n"
    # The other way to it, as from the page of the node, leads to the same kernel.
    page = stack.http.get(f"/console/demo/nodes/{ZONE}/book/notebook").text
    (link,) = re.findall(r'href="(http://127[^"]+/lab\?token=[0-9a-f]{64})"', page)
    with httpx.Client(trust_env=False) as browser:
        assert browser.get(link).status_code == 200
        kernels = urlsplit(link)._replace(path="/api/kernels").geturl()
        assert [item["id"] for item in browser.get(kernels).json()] == [kernel.id]


def test_nobody_gets_in_without_the_token(stack: Stack, kernel: Kernel) -> None:
    link = stack.call("POST", f"{NODE}:openNotebook")["url"]
    for query in ("", f"token={'0' * 64}"):
        other = urlsplit(link)._replace(path="/api/kernels", query=query).geturl()
        assert httpx.get(other, trust_env=False).status_code == 403


def test_those_who_may_not_use_hosts_get_no_token(stack: Stack, book: str) -> None:
    made = stack.command(
        "auth", "token", "create", "viewer@example.com", "--role", "tpu.viewer",
        "--data", str(stack.data),
    )  # fmt: skip
    token = next(word for word in made.stdout.split() if word.startswith("pdy_"))
    headers = {"Authorization": f"Bearer {token}"}
    answer = stack.http.post(f"{NODE}:openNotebook", json={}, headers=headers)
    assert answer.status_code == 403, answer.text
    page = stack.http.get(f"/console/demo/nodes/{ZONE}/{book}/notebook", headers=headers)
    assert page.status_code == 403
    assert "token=" not in page.text


def test_a_request_without_the_token_starts_nothing(stack: Stack) -> None:
    stack.create_node("shut", "v2-8", ZONE)
    path = NODE.replace("book", "shut")
    link = until(lambda: stack.call("POST", f"{path}:openNotebook")["url"] or None, 30, "the host")
    ahead = socket.create_connection((urlsplit(link).hostname, urlsplit(link).port))
    bare = httpx.get(urlsplit(link)._replace(query="").geturl(), trust_env=False)
    assert (bare.status_code, "no valid token" in bare.text) == (403, True)
    folders: list[Path] = list(stack.data.glob("agents/*/hosts/*/notebook.log"))
    assert not any("shut" in path.parent.name for path in folders)
    # What a browser connected ahead of the start serves the page's files, which have no token.
    assert httpx.get(link, trust_env=False, timeout=60).status_code < 400
    with ahead:
        ahead.sendall(b"GET /static/favicon.ico HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert not ahead.recv(100).startswith(b"HTTP/1.1 403")
    stack.delete_node("shut", ZONE)
