"""`podyard open`: the console in a browser, signed in."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from urllib.parse import quote

import click

from podyard.cli.kit.options import client_of, project_options, settings_of
from podyard.cli.kit.output import say

# in the data folder: the list of processes, which every user sees, has only its path
LINK_PAGE = "open.html"
_PAGE = (
    '<!doctype html><meta charset="utf-8"><title>Podyard</title>'
    '<meta http-equiv="refresh" content="0;url={url}"><a href="{url}">Open the console</a>\n'
)


@click.command(name="open")
@project_options
@click.option(
    "--print", "print_only", is_flag=True, help="Print the link instead of starting a browser."
)
def open_console(data: str | None, project: str | None, print_only: bool) -> None:
    """Open the console in a browser, signed in with your token. The link works once, within a
    minute."""
    client = client_of(data, project)
    link = f"{client.target.url}{client.call('POST', '/podyard/v1/signInLinks')['path']}"
    if print_only:
        click.echo(link)
        return
    page = settings_of(data).data / LINK_PAGE
    _write_private(page, _PAGE.format(url=quote(link, safe=":/?=&")))
    if webbrowser.open(page.as_uri()):
        say(f"opened {client.target.url}/console")
    else:
        say("no browser was found: open this link within a minute")
        click.echo(link)


def _write_private(path: Path, text: str) -> None:
    """Readable by its owner only, from the beginning."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)


COMMANDS = {"open": open_console}
