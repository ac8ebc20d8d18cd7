"""Starts JupyterLab on a host: `PYTHON -I launch.py PORT`, with JUPYTER_TOKEN in the environment.

Standard library only: it runs inside boxes. Notebooks run in the host's own Python, which is that
of its runtime version; the server may be Podyard's, so that a runtime needs `ipykernel` only.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

EXIT_MISSING = 3
_HAS = (
    "import importlib.util as u, sys; sys.exit(any(u.find_spec(n) is None for n in sys.argv[1:]))"
)
# Boxes reach no network, so that Jupyter's news and its list of extensions would only be errors.
_OPTIONS = (
    "--no-browser",
    "--ip=127.0.0.1",
    "--ServerApp.port_retries=0",
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
)
# Saved every 10 s, so that a reload shows the outputs (JupyterLab's own interval is 120 s).
_SETTINGS = {
    "docmanager-extension/plugin": {"autosaveInterval": 10},
    "apputils-extension/notification": {"fetchNews": "false"},
}


def has_packages(python: str, *names: str) -> bool:
    done = subprocess.run([python, "-c", _HAS, *names], check=False)
    return done.returncode == 0


def write_settings(folder: Path) -> None:
    """Write the settings of JupyterLab that the user has not set."""
    for name, text in _SETTINGS.items():
        path = folder / f"{name}.jupyterlab-settings"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(text), encoding="utf-8")


def main(port: str) -> None:
    """Becomes the server. Exits with EXIT_MISSING and a sentence where a package is missing."""
    kernel_python = shutil.which("python") or sys.executable
    server_python = next(
        (one for one in (kernel_python, sys.executable) if has_packages(one, "jupyterlab")), None
    )
    if server_python is None:
        print(
            "JupyterLab is not installed: run pip install 'podyard[notebook]' in the environment "
            f"of Podyard, or pip install jupyterlab on this host ({kernel_python})"
        )
        sys.exit(EXIT_MISSING)
    if not has_packages(kernel_python, "ipykernel"):
        print(
            f"ipykernel is not installed in this host's Python ({kernel_python}): run "
            "pip install ipykernel on this host"
        )
        sys.exit(EXIT_MISSING)
    home = Path.home()
    folder = home / ".local" / "share" / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True, exist_ok=True)
    kernel = {
        "argv": [kernel_python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"Python 3 ({os.environ.get('TPU_ACCELERATOR_TYPE', 'TPU')})",
        "language": "python",
        "metadata": {"debugger": True},
    }
    (folder / "kernel.json").write_text(json.dumps(kernel), encoding="utf-8")
    write_settings(home / ".jupyter" / "lab" / "user-settings" / "@jupyterlab")
    os.environ.update(
        JUPYTER_PREFER_ENV_PATH="0"
    )  # the kernel above, not that of the server's Python
    os.chdir(home)
    # -P: the user's files lie in the current folder, and one may be named json.py
    command = [server_python, "-P", "-m", "jupyterlab", *_OPTIONS, f"--port={port}"]
    os.execv(server_python, [*command, f"--ServerApp.root_dir={home}"])


if __name__ == "__main__":
    main(sys.argv[1])
