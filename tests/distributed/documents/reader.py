"""A reader of one page: types its commands in order on one fresh yard, and notes what fails."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.distributed.documents.blocks import ROOT, SHELL, Block, Command, blocks_of, commands
from tests.distributed.documents.pages import Page, Service, page_of
from tests.distributed.documents.terminal import (
    CommandOutcome,
    ReaderShell,
    environment,
    reader_path,
)

COMMAND_SECONDS_MAX = 240  # the longest trains a model on four hosts, or installs packages
SERVICE_SECONDS_MAX = 120
_SHOWN_CHARACTERS = 1500
# Programs that a machine may lack. Commands with them are skipped there, by name.
OPTIONAL = frozenset(("createdb", "curl", "docker", "gcloud", "gsutil", "openssl", "ssh", "zsh"))
_FILES = Path(__file__).with_name("files")


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    page: str
    command: Command
    outcome: CommandOutcome

    def __str__(self) -> str:
        end = "no end" if self.outcome.code is None else f"exit code {self.outcome.code}"
        printed = self.outcome.printed.strip()[-_SHOWN_CHARACTERS:]
        return f"{self.page}:{self.command.line}: {self.command.text}\n-> {end}\n{printed}\n"


class PageReader:
    """A reader with an empty home folder. `folder`: where commands are typed; it has the files of
    `files/`, such as the train.py that pages speak of, and is not the repository.

    `seconds`: the limit of a command. `failures` and `skipped` grow with each page."""

    def __init__(self, folder: Path, seconds: float = COMMAND_SECONDS_MAX) -> None:
        self.failures: list[Failure] = []
        self.skipped: list[str] = []
        self._seconds = seconds
        self._folder = folder / "work"
        self._log = folder / "terminal.log"
        self._count = 0
        shutil.copytree(_FILES, self._folder)
        home = folder / "home"
        home.mkdir()
        self._variables = environment(home, reader_path()) | {"REPOSITORY": str(ROOT)}
        self._services: list[tuple[Page, Command, ReaderShell]] = []
        self._start = self._folder
        self._terminal = self._open()

    def read(self, page: Page) -> None:
        """Type the commands of a page."""
        self._start = self._folder / page.folder
        self._terminal.close()
        self._terminal = self._open()
        if page.before:
            self._run(page, Command(0, page.before))
        for block in blocks_of(page.name):
            for command in self._commands_of(page, block):
                self._type(page, command)

    def stop(self) -> None:
        """Press Ctrl-C in each terminal that serves: each command must end in order."""
        while self._services:
            page, command, terminal = self._services.pop()
            outcome = terminal.interrupt()
            terminal.close()
            if outcome.code != 0:
                self._note(page, command, outcome)

    def close(self) -> None:
        """End what serves, and close all terminals."""
        self.stop()
        self._terminal.run("podyard down", SERVICE_SECONDS_MAX)
        self._terminal.close()

    def _open(self) -> ReaderShell:
        self._count += 1
        log = self._log.with_stem(f"terminal-{self._count}")
        return ReaderShell(self._start, log, self._variables)

    def _commands_of(self, page: Page, block: Block) -> Iterator[Command]:
        for program in page.programs:
            if block.text.startswith(program.starts):
                (self._folder / program.name).write_text(block.text, encoding="utf-8")
                if program.shell:
                    yield Command(block.line, program.shell)
                return
        if is_command(page, block):
            yield from commands(block)

    def _type(self, page: Page, command: Command) -> None:
        if any(command.text.startswith(item.starts) for item in page.exceptions):
            return
        if missing := [name for name in programs_of(command) if shutil.which(name) is None]:
            self.skipped.append(f"{', '.join(missing)} ({page.name}:{command.line})")
            return
        text = self._substituted(page, command)
        for service in page.services:
            if command.text.startswith(service.starts):
                self._serve(page, command, service, text)
                return
        self._run(page, dataclasses.replace(command, text=text))

    def _serve(self, page: Page, command: Command, service: Service, text: str) -> None:
        """Start a command that does not end by itself. Where it stays, what follows is typed in
        another terminal."""
        self._terminal.start(text)
        if not self._terminal.wait_text(service.until, SERVICE_SECONDS_MAX):
            self._note(page, command, CommandOutcome(None, self._terminal.printed()))
            self._terminal.close()
        elif service.stays:
            self._services.append((page, command, self._terminal))
        elif self._terminal.interrupt().code is not None:
            return
        self._terminal = self._open()

    def _run(self, page: Page, command: Command) -> None:
        outcome = self._terminal.run(command.text, self._seconds)
        refusal = next((one for one in page.refusals if command.text.startswith(one.starts)), None)
        if refusal is None:
            is_expected = outcome.code == 0
        else:
            is_expected = bool(outcome.code) and refusal.prints in outcome.printed
        if not is_expected:
            self._note(page, command, outcome)
        if outcome.code is None:
            self._terminal = self._open()

    def _note(self, page: Page, command: Command, outcome: CommandOutcome) -> None:
        self.failures.append(Failure(page.name, command, outcome))

    def _substituted(self, page: Page, command: Command) -> str:
        text = command.text
        for value in page.values:
            if value.word in text:
                shell = f"{{ {value.shell}; }} 2>/dev/null"
                printed = self._terminal.run(shell, SERVICE_SECONDS_MAX).printed.strip()
                text = text.replace(value.word, printed.splitlines()[-1] if printed else "")
        return text


def is_command(page: Page, block: Block) -> bool:
    """Return whether a block is typed: not a recorded output, a file, or an exception."""
    starts = tuple(item.starts for item in (*page.texts, *page.programs))
    return block.language in SHELL and not block.is_output and not block.text.startswith(starts)


def programs_of(command: Command) -> list[str]:
    """Return the programs of `OPTIONAL` that a command starts."""
    words = shlex.split(command.text, comments=True)
    return sorted(OPTIONAL.intersection(words))


def all_pages(table: Mapping[str, Page], names: list[str]) -> list[Page]:
    """Return the pages in `names` that have commands."""
    answer = [page_of(table, name) for name in names]
    return [page for page in answer if any(is_command(page, item) for item in blocks_of(page.name))]
