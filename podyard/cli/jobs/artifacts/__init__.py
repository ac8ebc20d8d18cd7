"""Files of a job: listed, downloaded, exported."""

from podyard.cli.jobs.artifacts import download, export

COMMANDS = (download.artifacts, download.download, export.export)
