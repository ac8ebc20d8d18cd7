"""`urllib.request`, by which Keras and torchvision download: published data sets come from the
user's folder."""

from __future__ import annotations

import functools
import os
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError
from urllib.response import addinfourl

from podyard.programs.datasets.published import FOLDER_VARIABLE, PublishedFile, file_of

_HTTP_OK = 200


def apply(module: ModuleType) -> None:
    """Answer `OpenerDirector.open` of `urllib.request`, whichever opener a program has."""
    director = module.OpenerDirector
    open_address = director.open

    @functools.wraps(open_address)
    def open_or_copy(self: Any, fullurl: Any, *arguments: Any, **options: Any) -> Any:
        url = fullurl if isinstance(fullurl, str) else fullurl.full_url
        file = file_of(url)
        if file is None:
            return open_address(self, fullurl, *arguments, **options)
        path = Path(os.environ.get(FOLDER_VARIABLE, ""), *file)
        if os.access(path, os.R_OK):
            return _answer(path, url)
        try:
            return open_address(self, fullurl, *arguments, **options)
        except OSError as error:  # URLError, HTTPError and timeouts among them
            raise URLError(_advice(file, getattr(error, "reason", error))) from error

    director.open = open_or_copy


class CopiedAnswer(addinfourl):
    """A file as the answer to a request, with what http.client's answers have besides."""

    msg = "OK"

    @property
    def length(self) -> int:
        """torchvision's progress bar reads it."""
        return int(self.headers["Content-Length"])


def _answer(path: Path, url: str) -> CopiedAnswer:
    headers = Message()
    headers["Content-Length"] = str(path.stat().st_size)
    return CopiedAnswer(path.open("rb"), headers, url, _HTTP_OK)


def _advice(file: PublishedFile, reason: object) -> str:
    return (
        f"{reason}; {file.name} is not among the data sets of this Podyard: "
        f"podyard dataset add {file.set_name} {file.name}"
    )
