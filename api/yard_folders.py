"""A check that this machine has the data folders of the yard that its database holds.

Several API processes on one database server serve the same contents, logs and objects, from folders
that they share, and know the same tokens. A file `yard.id` in each of these folders, and the yard's
row, have the same text.
"""

from __future__ import annotations

from pathlib import Path

from podyard.base.errors import failed_precondition
from podyard.base.files import write_atomically
from podyard.base.rng import secret_token
from podyard.db.store import yard
from podyard.db.store.unit_of_work import Database
from podyard.settings import Settings

ID_FILE = "yard.id"
# what another machine needs in its own data folder, with the file itself
COPIED = ("token", "secrets.key", "tls")


def check(settings: Settings, database: Database) -> None:
    """Marks the folders of a yard at its first start. Raises FAILED_PRECONDITION for folders of
    another yard, or none, before anything is written."""
    found = database.read(yard.folders_id)
    if found is None:
        made = secret_token(16)
        _mark(settings, made)
        database.run(lambda uow: yard.keep_folders_id(uow, made))
    elif database.is_sqlite:
        _mark(settings, found)  # the database is in the data folder, or was put there with it
    else:
        _require(settings, found)


def shared_folders(settings: Settings) -> dict[str, Path]:
    """Folders that all API processes of a yard share, by their names in the data folder."""
    return {
        path.relative_to(settings.data).parts[0]: settings.data
        / path.relative_to(settings.data).parts[0]
        for path in (settings.contents_path, settings.logs_path, settings.objects_path)
    }


def _mark(settings: Settings, text: str) -> None:
    for folder in (settings.data, *shared_folders(settings).values()):
        if _read(folder) != text:
            folder.mkdir(mode=0o700, exist_ok=True)
            write_atomically(folder / ID_FILE, f"{text}\n".encode())


def _require(settings: Settings, text: str) -> None:
    data = settings.data
    if _read(data) != text:
        copied = ", ".join((ID_FILE, *COPIED))
        raise failed_precondition(
            f"the database belongs to a Podyard with another data folder than {data}: copy "
            f"{copied} from there, and "
            "share its folders contents, logs and objects; or if that folder is lost, run "
            "`podyard admin adopt-folders`"
        )
    for name, folder in shared_folders(settings).items():
        if _read(folder) != text:
            raise failed_precondition(
                f"{folder} is not the folder {name} that the other machines of this yard use: "
                "mount it there, or link "
                "to it; or if it is lost, run `podyard admin adopt-folders`"
            )


def _read(folder: Path) -> str | None:
    try:
        return (folder / ID_FILE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
