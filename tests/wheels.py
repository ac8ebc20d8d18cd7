"""Wheels that tests make: packages of one module, for pip without a network."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path


def write_wheels(folder: Path, pins: Iterable[str]) -> dict[str, str]:
    """A wheel for each `name==version` in `folder`; returns the settings with which pip finds them,
    and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    for pin in pins:
        name, version = pin.split("==")
        module = name.replace("-", "_")
        files = {
            f"{module}/__init__.py": f"__version__ = {version!r}\n",
            f"{module}-{version}.dist-info/METADATA": (
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            ),
            f"{module}-{version}.dist-info/WHEEL": (
                "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            ),
        }
        record = f"{module}-{version}.dist-info/RECORD"
        files[record] = "".join(f"{path},,\n" for path in (*files, record))
        with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
            for path, text in files.items():
                wheel.writestr(path, text)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}
